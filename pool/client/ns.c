/* Namespaces: keys as paths, directories, layouts. */
#include "pool/client/client_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "pool/base/clock.h"
#include "pool/model/key.h"

#define LAYOUT "user.kvpool_layout"
#define WORD_MAX 200

/* ---- keys ---- */

int client_path_set(const struct kvpool_ns *ns, const struct kvpool_key *key,
		    struct client_path *ret)
{
	char buf[POOL_PATH_MAX + 1];
	size_t cap = sizeof(buf) - (ns->root ? 0 : ns->path_len + 1);
	int n;

	ret->own = NULL;
	if (!key->data && key->len > 0)
		return -EINVAL;
	if (pool_key_plain(key->data, key->len, ns->root) && key->len < cap) {
		ret->at = key->data;
		ret->len = key->len;
		ret->plain = true;
		return 0;
	}
	n = pool_key_path(key->data, key->len, ns->root, buf, cap);
	if (n < 0)
		return n;
	ret->own = strdup(buf);
	if (!ret->own)
		return -ENOMEM;
	ret->at = ret->own;
	ret->len = (size_t)n;
	ret->plain = !memchr(buf, '/', (size_t)n);
	return 0;
}

void client_path_free(struct client_path *path)
{
	free(path->own);
	path->own = NULL;
}

int kvpool_key_path(const struct kvpool_ns *ns, const void *key,
		    size_t key_len, char *buf, size_t cap)
{
	char path[POOL_PATH_MAX + 1];
	int n;

	if (!ns || (!key && key_len > 0) || !buf)
		return client_fail(-EINVAL, "the namespace, the key or buf is "
					    "NULL");
	n = pool_key_path(key, key_len, ns->root, path,
			  sizeof(path) - (ns->root ? 0 : ns->path_len + 1));
	if (n < 0 || (size_t)n >= cap)
		return client_fail(-ENAMETOOLONG, "the key is too long");
	memcpy(buf, path, (size_t)n + 1);
	return n;
}

int kvpool_path_key(const struct kvpool_ns *ns, const char *path, void *buf,
		    size_t cap)
{
	int n;

	if (!ns || !path || !buf)
		return client_fail(-EINVAL, "the namespace, the path or buf is "
					    "NULL");
	n = pool_key_of_path(path, strlen(path), ns->root, buf, cap);
	return n < 0 ? client_fail(n, "no key has the path \"%s\"", path) : n;
}

/* ---- directories ---- */

int client_denied(const struct kvpool *p, const char *what)
{
	const struct pool_tls_id *self = pool_node_self(p->node);
	char dirs[POOL_TLS_DIRS_TEXT], uids[POOL_TLS_UIDS_URI];

	if (!pool_tls_id_speaks_for(self, geteuid()))
		return client_fail(-EACCES, "\"%s\": this connection's "
				   "certificate is not for user %u, but for "
				   "%s", what, (unsigned int)geteuid(),
				   pool_tls_id_uids(self, uids));
	return client_fail(-EACCES, "\"%s\" is not in the namespaces of this "
			   "connection's certificate: %s", what,
			   self ? pool_tls_id_dirs(self, dirs) : "none");
}

struct pool_entry *client_find(const struct kvpool *p, struct node_dirent *dir,
			       const char *path, size_t len)
{
	const struct pool_tree *t = pool_node_tree(p->node);
	struct pool_entry *e = NULL;
	const char *slash;
	size_t n;

	if (dir && len == 0)
		return &node_dir_tree(dir)->e;
	for (; dir; path += n + 1, len -= n + 1) {
		slash = memchr(path, '/', len);
		n = slash ? (size_t)(slash - path) : len;
		e = pool_tree_find(t, node_dir_tree(dir), path, n);
		if (!e || !pool_node_visible(e))
			return NULL;
		if (!slash)
			break;
		dir = node_dir(e);
		e = NULL;
	}
	return e;
}

static int other_layout(const struct kvpool_ns *ns, const void *has, size_t len)
{
	return client_fail(-EMEDIUMTYPE, "namespace \"%s\" has the layout "
			   "\"%.*s\", not \"%s\"", ns->path, (int)len,
			   (const char *)has, ns->layout);
}

static const void *layout_of(const struct node_dirent *dir, size_t *ret_len)
{
	return pool_xattrs_get(pool_node_xattrs(&node_dir_tree(dir)->e), LAYOUT,
			       ret_len);
}

static int check_layout(const struct kvpool_ns *ns,
			const struct node_dirent *dir)
{
	const void *has;
	size_t len;

	if (!ns->layout)
		return 0;
	has = layout_of(dir, &len);
	if (has && (len != strlen(ns->layout) ||
		    memcmp(has, ns->layout, len) != 0))
		return other_layout(ns, has, len);
	return 0;
}

int client_ns_dir(const struct kvpool_ns *ns, struct node_dirent **ret_dir)
{
	struct pool_entry *e = client_find(ns->pool,
					   pool_node_root(ns->pool->node),
					   ns->path, ns->path_len);
	int err;

	if (e && !e->is_dir)
		return client_fail(-ENOTDIR, "\"%s\" is a file, not a "
				   "namespace", ns->path);
	*ret_dir = node_dir(e);
	err = e ? check_layout(ns, *ret_dir) : 0;
	return err;
}

static int make_dir(struct kvpool *p, struct node_dirent *dir, const char *name,
		    size_t len, struct node_dirent **ret_dir)
{
	struct pool_entry *e = pool_tree_find(
		pool_node_tree(p->node), node_dir_tree(dir), name, len);
	struct node_attr attr = { .mode = 0755,
				  .uid = geteuid(),
				  .gid = getegid(),
				  .mtime_ns = pool_wall_ns() };
	int err;

	if (e && pool_node_visible(e)) {
		*ret_dir = node_dir(e);
		return e->is_dir ? 0 : -ENOTDIR;
	}
	err = pool_node_mkdir(p->node, dir, name, len, &attr, ret_dir);
	return err == -EBUSY ? -EAGAIN : err;
}

/* Creates the missing directories of path; *ret_rest is its last component. */
static int make_dirs(struct kvpool *p, struct node_dirent *dir,
		     const char *path, size_t len, struct node_dirent **ret_dir,
		     const char **ret_rest)
{
	const char *slash;
	int err = 0;

	while (!err && (slash = memchr(path, '/', len))) {
		err = make_dir(p, dir, path, (size_t)(slash - path), &dir);
		len -= (size_t)(slash - path) + 1;
		path = slash + 1;
	}
	*ret_dir = dir;
	*ret_rest = path;
	return err;
}

static int make_ns(const struct kvpool_ns *ns, struct node_dirent **ret_dir)
{
	struct kvpool *p = ns->pool;
	struct node_dirent *dir = pool_node_root(p->node);
	const char *name;
	size_t len;
	int err = 0;

	if (!ns->root) {
		err = make_dirs(p, dir, ns->path, ns->path_len, &dir, &name);
		len = ns->path_len - (size_t)(name - ns->path);
		if (!err)
			err = make_dir(p, dir, name, len, &dir);
	}
	if (err)
		return err;
	*ret_dir = dir;
	if (!ns->layout || layout_of(dir, &len))
		return check_layout(ns, dir);
	return pool_node_setxattr(p->node, &node_dir_tree(dir)->e, LAYOUT,
				  ns->layout, strlen(ns->layout), XATTR_CREATE);
}

int client_make_dirs(const struct kvpool_ns *ns, const struct client_path *path,
		     struct node_dirent **ret_dir, const char **ret_name)
{
	struct node_dirent *dir;
	int err = make_ns(ns, &dir);

	return err ? err : make_dirs(ns->pool, dir, path->at, path->len,
				     ret_dir, ret_name);
}

/* ---- layouts ---- */

static int check_word(const char *word)
{
	size_t n = word ? strlen(word) : 0;

	for (size_t i = 0; i < n; i++)
		if (word[i] == ';' || (unsigned char)word[i] < ' ' ||
		    word[i] == 127)
			return -EINVAL;
	return n > WORD_MAX ? -EINVAL : 0;
}

static int layout_text(const struct kvpool_layout *layout, char **ret_text)
{
	struct kvpool_layout with, *l = &with;
	int err = client_copy_struct(l, sizeof(*l), layout, layout->struct_size,
				     sizeof(*l), "layout");

	if (err)
		return err;
	if (check_word(l->model) || check_word(l->dtype) ||
	    check_word(l->layout))
		return client_fail(-EINVAL, "a string of the layout is longer "
				   "than %d bytes, or has ';' or control "
				   "characters", WORD_MAX);
	if (asprintf(ret_text, "model=%s;dtype=%s;layout=%s;tp=%u;tokens=%u",
		     l->model ? l->model : "", l->dtype ? l->dtype : "",
		     l->layout ? l->layout : "", l->tp, l->tokens) < 0) {
		*ret_text = NULL;
		return client_fail(-ENOMEM, "no memory for a namespace");
	}
	return 0;
}

/* ---- opening one ---- */

struct opening {
	struct pool_mail mail;
	struct kvpool_ns *ns;
	uv_sem_t done;
	int err;
};

static void on_open(struct pool_mail *mail)
{
	struct opening *o = pool_container_of(mail, struct opening, mail);
	struct node_dirent *dir;

	o->err = make_ns(o->ns, &dir);
	uv_sem_post(&o->done);
}

/* Creates the directory with the layout and waits until the whole pool knows
 * it. If two nodes set different layouts at once, both see the later one, and
 * the other node is refused. */
static int make_layout(struct kvpool_ns *ns)
{
	struct node_dirent *dir = NULL;
	struct opening o = { .ns = ns };
	int err;

	uv_sem_init(&o.done, 0);
	do {
		pool_mailbox_post(&ns->pool->box, &o.mail, on_open);
		uv_sem_wait(&o.done);
		if (o.err == -EAGAIN)
			usleep(CLIENT_RETRY_MS * 1000);
	} while (o.err == -EAGAIN);
	uv_sem_destroy(&o.done);
	if (!o.err)
		o.err = kvpool_sync(ns->pool);
	else if (o.err == -EACCES)
		return client_denied(ns->pool, ns->path);
	else if (o.err != -EMEDIUMTYPE)
		return client_fail(o.err, "namespace \"%s\" cannot be made: %s",
				   ns->path, strerror(-o.err));
	if (o.err == -ETIMEDOUT)
		return o.err;
	/* On this thread, so that kvpool_last_error shows both layouts. */
	pool_shortlock_read(&ns->pool->names);
	err = client_ns_dir(ns, &dir);
	pool_shortlock_give(&ns->pool->names);
	return err ? err : o.err;
}

static int check_ns_path(const char *path)
{
	if (!path || (path[0] && pool_path_check(path, strlen(path))) ||
	    strcmp(path, ".kvpool") == 0 || strncmp(path, ".kvpool/", 8) == 0)
		return client_fail(-EINVAL, "\"%s\" is not a valid directory "
				   "of a mount", path ? path : "(NULL)");
	return 0;
}

int kvpool_open_ns(struct kvpool *pool, const char *path,
		   const struct kvpool_layout *layout,
		   struct kvpool_ns **ret_ns)
{
	struct node_dirent *dir;
	struct kvpool_ns *ns;
	int err = client_check(pool);

	if (!err)
		err = check_ns_path(path);
	if (!err && !ret_ns)
		err = client_fail(-EINVAL, "ret_ns is NULL");
	if (!err && pool_tls_id_reach(pool_node_self(pool->node), path,
				      strlen(path)) == POOL_OUTSIDE)
		err = client_denied(pool, path);
	if (err)
		return err;
	ns = calloc(1, sizeof(*ns));
	if (!ns)
		return client_fail(-ENOMEM, "no memory for a namespace");
	ns->pool = pool;
	ns->path = strdup(path);
	ns->path_len = strlen(path);
	ns->root = !path[0];
	err = ns->path ? 0 : client_fail(-ENOMEM, "no memory for a namespace");
	if (!err && layout)
		err = layout_text(layout, &ns->layout);
	if (!err) {
		pool_shortlock_read(&pool->names);
		err = client_ns_dir(ns, &dir);
		if (!err && layout &&
		    (!dir || !layout_of(dir, &(size_t){ 0 })))
			err = 1; /* it has none yet */
		pool_shortlock_give(&pool->names);
	}
	if (err > 0)
		err = make_layout(ns);
	if (err) {
		kvpool_close_ns(ns);
		return err;
	}
	*ret_ns = ns;
	return 0;
}

void kvpool_close_ns(struct kvpool_ns *ns)
{
	if (!ns)
		return;
	free(ns->path);
	free(ns->layout);
	free(ns);
}
