#include "pool/verbs/cm.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pool/base/clock.h"
#include "pool/base/log.h"

struct verbs_cm {
	struct rdma_event_channel *channel; /* owns */
	uv_poll_t poll;
	struct pool_list listening; /* struct listening */
	struct pool_list awaited;   /* struct verbs_cm_conn: no request yet */
	void (*closed)(void *arg);
	void *arg;
};

/* A listening id; one for each port. */
struct listening {
	struct pool_list link;
	struct verbs_port *port;
	struct rdma_cm_id *id; /* owns */
	char host[CM_HOST_MAX];
	uint16_t tcp_port;
};

/* The private data of a connection request: a token, little endian. */
#define TOKEN_SIZE 8

static void token_write(uint64_t token, uint8_t out[TOKEN_SIZE])
{
	for (int i = 0; i < TOKEN_SIZE; i++)
		out[i] = (uint8_t)(token >> (8 * i));
}

static bool token_read(const struct rdma_conn_param *p, uint64_t *ret)
{
	const uint8_t *data = p->private_data;

	/* Some devices pad the private data. */
	if (!data || p->private_data_len < TOKEN_SIZE)
		return false;
	*ret = 0;
	for (int i = 0; i < TOKEN_SIZE; i++)
		*ret |= (uint64_t)data[i] << (8 * i);
	return true;
}

/* ---- the address of a port ---- */

/* The name of the network device of the port's GID. */
static bool port_ndev(const struct verbs_port *port, char *buf, size_t cap)
{
	char path[256];
	FILE *f;
	bool ok;

	snprintf(path, sizeof(path),
		 "/sys/class/infiniband/%s/ports/%u/gid_attrs/ndevs/%u",
		 port->device, port->number, port->gid_index);
	f = fopen(path, "re");
	if (!f)
		return false;
	ok = fgets(buf, (int)cap, f) != NULL;
	fclose(f);
	buf[strcspn(buf, "\n")] = '\0';
	return ok && buf[0];
}

static bool is_usable(const struct sockaddr *a)
{
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)a;

	return a && (a->sa_family == AF_INET ||
		     (a->sa_family == AF_INET6 &&
		      !IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr)));
}

/* Is `a` the address in the GID? A network device may have several. */
static bool is_gid(const struct verbs_port *port, const struct sockaddr *a)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)a;
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)a;

	if (a->sa_family == AF_INET6)
		return memcmp(&in6->sin6_addr, port->gid.raw, 16) == 0;
	return memcmp(&in->sin_addr, port->gid.raw + 12, 4) == 0;
}

/* An IP address of the port's network device (found in sysfs gid_attrs/ndevs).
 * 0 or -EADDRNOTAVAIL. */
static int verbs_port_ip(const struct verbs_port *port,
			 struct sockaddr_storage *ret)
{
	char ndev[64];
	struct ifaddrs *all, *i;
	const struct sockaddr *best = NULL;

	if (!port_ndev(port, ndev, sizeof(ndev)) || getifaddrs(&all) < 0)
		return -EADDRNOTAVAIL;
	for (i = all; i; i = i->ifa_next) {
		if (strcmp(i->ifa_name, ndev) != 0 || !is_usable(i->ifa_addr))
			continue;
		if (!best || is_gid(port, i->ifa_addr))
			best = i->ifa_addr;
	}
	memset(ret, 0, sizeof(*ret));
	if (best)
		memcpy(ret, best, best->sa_family == AF_INET ?
					  sizeof(struct sockaddr_in) :
					  sizeof(struct sockaddr_in6));
	freeifaddrs(all);
	return best ? 0 : -EADDRNOTAVAIL;
}

static int host_of(const struct sockaddr_storage *a, char host[CM_HOST_MAX])
{
	const void *in = a->ss_family == AF_INET ?
				 (const void *)&((const struct sockaddr_in *)a)
					 ->sin_addr :
				 &((const struct sockaddr_in6 *)a)->sin6_addr;

	return inet_ntop(a->ss_family, in, host, CM_HOST_MAX) ? 0 : -errno;
}

static int address_of(const char *host, uint16_t tcp_port,
		      struct sockaddr_storage *ret)
{
	struct sockaddr_in *in = (struct sockaddr_in *)ret;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ret;

	memset(ret, 0, sizeof(*ret));
	if (inet_pton(AF_INET, host, &in->sin_addr) == 1) {
		in->sin_family = AF_INET;
		in->sin_port = htons(tcp_port);
	} else if (inet_pton(AF_INET6, host, &in6->sin6_addr) == 1) {
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons(tcp_port);
	} else {
		return -EINVAL;
	}
	return 0;
}

/* ---- connections ---- */

static void fail(struct verbs_cm_conn *c, int err)
{
	if (c->ended)
		return;
	c->ended = true;
	pool_list_del(&c->link);
	c->failed(c, err);
}

static int make(struct verbs_cm_conn *c, struct rdma_cm_id *id)
{
	if (id->verbs != c->port->ctx)
		return -EXDEV; /* routed through another device */
	return c->made(c, id);
}

static void conn_param(struct verbs_cm_conn *c, struct rdma_conn_param *p,
		       uint8_t token[TOKEN_SIZE])
{
	memset(p, 0, sizeof(*p));
	p->responder_resources = c->port->reads_in;
	p->initiator_depth = c->port->reads_out;
	p->retry_count = 5;
	p->rnr_retry_count = 6;
	if (token) {
		token_write(c->token, token);
		p->private_data = token;
		p->private_data_len = TOKEN_SIZE;
	}
}

static void step_route(struct verbs_cm_conn *c)
{
	if (rdma_resolve_route(c->id, CM_STEP_MS) < 0)
		fail(c, -errno);
}

static void step_connect(struct verbs_cm_conn *c)
{
	uint8_t token[TOKEN_SIZE];
	struct rdma_conn_param p;
	int err = make(c, c->id);

	if (err) {
		fail(c, err);
		return;
	}
	conn_param(c, &p, token);
	if (rdma_connect(c->id, &p) < 0)
		fail(c, -errno);
}

static struct verbs_cm_conn *awaited_find(struct verbs_cm *cm, uint64_t token)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &cm->awaited) {
		struct verbs_cm_conn *c =
			pool_list_entry(it, struct verbs_cm_conn, link);

		if (c->token == token)
			return c;
	}
	return NULL;
}

/* A connection request: accepts it if the token is one that we issued. The
 * event has been acknowledged, so the id may be destroyed. */
static void on_request(struct verbs_cm *cm, struct rdma_cm_id *id,
		      bool has_token, uint64_t token)
{
	struct verbs_cm_conn *c = has_token ? awaited_find(cm, token) : NULL;
	struct rdma_conn_param p;
	int err;

	if (!c) {
		pool_warn_limited("RDMA connection request with an unknown "
				  "token: rejected");
		(void)rdma_reject(id, NULL, 0);
		rdma_destroy_id(id);
		return;
	}
	pool_list_del(&c->link);
	c->id = id;
	id->context = c;
	err = make(c, id);
	if (err) {
		(void)rdma_reject(id, NULL, 0);
		fail(c, err);
		return;
	}
	conn_param(c, &p, NULL);
	if (rdma_accept(id, &p) < 0)
		fail(c, -errno);
}

static void on_event(struct verbs_cm_conn *c, enum rdma_cm_event_type what,
		     int status)
{
	switch (what) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		step_route(c);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		step_connect(c);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		c->connected(c);
		break;
	case RDMA_CM_EVENT_ADDR_CHANGE:
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		break;
	case RDMA_CM_EVENT_REJECTED:
		fail(c, -ECONNREFUSED);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		fail(c, -ECONNRESET);
		break;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		verbs_port_gone(c->port);
		fail(c, -ENODEV);
		break;
	default: /* an error; status is -errno, or a reason of the CM */
		fail(c, status < 0 && status > -4096 ? status : -EHOSTUNREACH);
		break;
	}
}

/* Handles one event; false if there is none. Acknowledges it first, as
 * rdma_destroy_id blocks until that is done. */
static bool take_event(struct verbs_cm *cm)
{
	struct rdma_cm_event *e;
	enum rdma_cm_event_type what;
	struct rdma_cm_id *id;
	struct verbs_cm_conn *c;
	uint64_t token = 0;
	bool has_token;
	int status;

	if (rdma_get_cm_event(cm->channel, &e) < 0)
		return false;
	what = e->event;
	id = e->id;
	status = e->status;
	has_token = what == RDMA_CM_EVENT_CONNECT_REQUEST &&
		    token_read(&e->param.conn, &token);
	c = what == RDMA_CM_EVENT_CONNECT_REQUEST ? NULL : id->context;
	rdma_ack_cm_event(e);
	if (what == RDMA_CM_EVENT_CONNECT_REQUEST)
		on_request(cm, id, has_token, token);
	else if (c && !c->ended)
		on_event(c, what, status);
	return true;
}

static void on_events(uv_poll_t *p, int status, int events)
{
	struct verbs_cm *cm = pool_container_of(p, struct verbs_cm, poll);

	(void)status;
	(void)events;
	for (int i = 0; i < CM_BACKLOG && take_event(cm); i++)
		;
}

/* ---- connecting and listening ---- */

static void conn_init(struct verbs_cm *cm, struct verbs_port *port,
		      struct verbs_cm_conn *c)
{
	pool_list_init(&c->link);
	c->cm = cm;
	c->port = port;
	c->id = NULL;
	c->ended = false;
}

int verbs_cm_call(struct verbs_cm *cm, struct verbs_port *port,
		  struct verbs_cm_conn *c, const char *host, uint16_t tcp_port,
		  uint64_t token)
{
	struct sockaddr_storage from, to;
	int err = verbs_port_ip(port, &from);

	conn_init(cm, port, c);
	c->token = token;
	if (!err)
		err = address_of(host, tcp_port, &to);
	if (err)
		return err;
	if (rdma_create_id(cm->channel, &c->id, c, RDMA_PS_TCP) < 0)
		return -errno;
	if (rdma_resolve_addr(c->id, (struct sockaddr *)&from,
			      (struct sockaddr *)&to, CM_STEP_MS) == 0)
		return 0;
	err = -errno;
	verbs_cm_free(c);
	return err;
}

static struct listening *listening_find(struct verbs_cm *cm,
					const struct verbs_port *port)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &cm->listening) {
		struct listening *l = pool_list_entry(it, struct listening,
						      link);

		if (l->port == port)
			return l;
	}
	return NULL;
}

static int listening_start(struct verbs_cm *cm, struct listening *l)
{
	struct sockaddr_storage at;
	int err = verbs_port_ip(l->port, &at);

	if (!err)
		err = host_of(&at, l->host);
	if (err)
		return err;
	if (rdma_create_id(cm->channel, &l->id, NULL, RDMA_PS_TCP) < 0)
		return -errno;
	if (rdma_bind_addr(l->id, (struct sockaddr *)&at) < 0 ||
	    rdma_listen(l->id, CM_BACKLOG) < 0) {
		err = -errno;
		rdma_destroy_id(l->id);
		return err;
	}
	l->tcp_port = ntohs(rdma_get_src_port(l->id));
	return 0;
}

static int listening_get(struct verbs_cm *cm, struct verbs_port *port,
			 struct listening **ret)
{
	struct listening *l = listening_find(cm, port);
	int err;

	if (!l) {
		l = calloc(1, sizeof(*l));
		if (!l)
			return -ENOMEM;
		l->port = port;
		err = listening_start(cm, l);
		if (err) {
			free(l);
			return err;
		}
		pool_list_add_tail(&cm->listening, &l->link);
	}
	*ret = l;
	return 0;
}

int verbs_cm_await(struct verbs_cm *cm, struct verbs_port *port,
		   struct verbs_cm_conn *c, char ret_host[CM_HOST_MAX],
		   uint16_t *ret_port, uint64_t *ret_token)
{
	struct listening *l;
	int err;

	conn_init(cm, port, c);
	err = listening_get(cm, port, &l);
	if (err)
		return err;
	c->token = pool_random_u64();
	pool_list_add_tail(&cm->awaited, &c->link);
	memcpy(ret_host, l->host, CM_HOST_MAX);
	*ret_port = l->tcp_port;
	*ret_token = c->token;
	return 0;
}

void verbs_cm_end(struct verbs_cm_conn *c)
{
	pool_list_del(&c->link);
	c->ended = true;
	if (c->id)
		(void)rdma_disconnect(c->id);
}

void verbs_cm_free(struct verbs_cm_conn *c)
{
	if (c->id)
		rdma_destroy_id(c->id);
	c->id = NULL;
}

/* ---- open and close ---- */

int verbs_cm_open(uv_loop_t *loop, struct verbs_cm **ret_cm)
{
	struct verbs_cm *cm = calloc(1, sizeof(*cm));
	int flags, err;

	if (!cm)
		return -ENOMEM;
	pool_list_init(&cm->listening);
	pool_list_init(&cm->awaited);
	cm->channel = rdma_create_event_channel();
	if (!cm->channel) {
		err = errno ? -errno : -ENODEV;
		free(cm);
		return err;
	}
	flags = fcntl(cm->channel->fd, F_GETFL);
	err = fcntl(cm->channel->fd, F_SETFL, flags | O_NONBLOCK) < 0 ?
		      -errno : uv_poll_init(loop, &cm->poll, cm->channel->fd);
	if (err) {
		rdma_destroy_event_channel(cm->channel);
		free(cm);
		return err;
	}
	uv_poll_start(&cm->poll, UV_READABLE, on_events);
	*ret_cm = cm;
	return 0;
}

static void on_poll_closed(uv_handle_t *h)
{
	struct verbs_cm *cm =
		pool_container_of((uv_poll_t *)h, struct verbs_cm, poll);
	void (*closed)(void *arg) = cm->closed;
	void *arg = cm->arg;

	rdma_destroy_event_channel(cm->channel);
	free(cm);
	closed(arg);
}

void verbs_cm_close(struct verbs_cm *cm, void (*closed)(void *arg), void *arg)
{
	assert(pool_list_empty(&cm->awaited));
	while (!pool_list_empty(&cm->listening)) {
		struct listening *l = pool_list_first(
			&cm->listening, struct listening, link);

		pool_list_del(&l->link);
		rdma_destroy_id(l->id);
		free(l);
	}
	cm->closed = closed;
	cm->arg = arg;
	uv_close((uv_handle_t *)&cm->poll, on_poll_closed);
}
