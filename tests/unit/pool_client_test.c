/* libkvpool: its calls, as a program uses them. */
#include "pool/client/client_priv.h"
#include "pool/node/node_priv.h"
#include "tests/unit/client_pool.h"

/* ---- tests ---- */

static void what_one_puts_another_gets(void **state)
{
	static const size_t sizes[] = { 0, 1, 4096, 65536, 65537, 1 << 20,
					3 << 20 };
	struct fixture *f = *state;
	char key[32];

	for (unsigned int i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		snprintf(key, sizeof(key), "key%u", i);
		put(f, key, sizes[i], i);
		assert_int_equal(kvpool_exists(f->other_ns, key, 4), 1);
		assert_int_equal(kvpool_get_size(f->other_ns, key, 4),
				 sizes[i]);
		assert_int_equal(get_other(f, key, MEM), sizes[i]);
		assert_filled(f->mem, sizes[i], i);
		/* now there is a local copy */
		assert_int_equal(get_other(f, key, sizes[i]), sizes[i]);
		assert_filled(f->mem, sizes[i], i);
	}
}

static void keys_are_any_bytes(void **state)
{
	struct fixture *f = *state;
	char key[600], buf[4097], back[KVPOOL_KEY_MAX];
	int n;

	for (size_t len = 0; len < sizeof(key); len += 1 + len / 8) {
		fill(key, len, (unsigned int)len);
		if (len > 3)
			key[2] = '/';
		assert_int_equal(kvpool_put_from(f->ns, key, len, f->mem,
						 len, 0), 0);
		assert_int_equal(kvpool_exists(f->ns, key, len), 1);
		n = kvpool_key_path(f->ns, key, len, buf, sizeof(buf));
		assert_true(n > 0);
		assert_int_equal(kvpool_path_key(f->ns, buf, back,
						 sizeof(back)), len);
		assert_memory_equal(back, key, len);
	}
	assert_int_equal(kvpool_sync(f->pool), 0);
	for (size_t len = 0; len < sizeof(key); len += 1 + len / 8) {
		fill(key, len, (unsigned int)len);
		if (len > 3)
			key[2] = '/';
		assert_int_equal(kvpool_get_into(f->other_ns, key, len, f->mem,
						 MEM, 0), len);
	}
	assert_int_equal(kvpool_exists(f->ns, key, KVPOOL_KEY_MAX + 1),
			 -ENAMETOOLONG);
}

static void a_key_and_those_below_it_are_different(void **state)
{
	struct fixture *f = *state;

	put(f, "a", 10, 1);
	put(f, "a/b", 20, 2);
	put(f, "a/", 30, 3);
	assert_int_equal(get_other(f, "a", MEM), 10);
	assert_int_equal(get_other(f, "a/b", MEM), 20);
	assert_int_equal(get_other(f, "a/", MEM), 30);
}

/* The temporary names of puts are not the path of any key. */
static void temporary_names_are_no_keys(void **state)
{
	static const char *const first[] = { "", "%2E", "%252E" };
	struct fixture *f = *state;
	char key[48];

	for (unsigned int i = 0; i < 90; i++) {
		snprintf(key, sizeof(key), "%s.tmp.kvpool.%u", first[i % 3],
			 i / 3 + 90);
		put(f, key, 100 + i, i);
	}
	for (unsigned int i = 0; i < 90; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		put(f, key, 10, i);
	}
	for (unsigned int i = 0; i < 90; i++) {
		snprintf(key, sizeof(key), "%s.tmp.kvpool.%u", first[i % 3],
			 i / 3 + 90);
		assert_int_equal(get_other(f, key, MEM), 100 + i);
		assert_filled(f->mem, 100 + i, i);
	}
}

static void a_put_replaces_what_was_there(void **state)
{
	struct fixture *f = *state;
	const void *at;
	size_t len;

	put(f, "k", 100000, 1);
	assert_int_equal(kvpool_map(f->other_ns, "k", 1, &at, &len), 0);
	put(f, "k", 5000, 2);
	assert_int_equal(get_other(f, "k", MEM), 5000);
	assert_filled(f->mem, 5000, 2);
	assert_int_equal(len, 100000);
	assert_filled(at, len, 1); /* a mapping keeps the old bytes */
	kvpool_unmap(at, len);
	assert_int_equal(kvpool_put_from(f->ns, "k", 1, f->mem, 1,
					 KVPOOL_IF_ABSENT), -EEXIST);
	assert_int_equal(get_other(f, "k", MEM), 5000);
}

static void a_put_is_visible_at_once_to_its_client(void **state)
{
	struct fixture *f = *state;
	char key[16];

	for (unsigned int i = 0; i < 200; i++) {
		size_t len = i % 7 ? 3000 : 200000;

		snprintf(key, sizeof(key), "k%u", i % 20);
		fill(f->mem, len, i);
		assert_int_equal(kvpool_put_from(f->ns, key, strlen(key),
						 f->mem, len, 0), 0);
		assert_int_equal(kvpool_exists(f->ns, key, strlen(key)), 1);
		assert_int_equal(kvpool_get_size(f->ns, key, strlen(key)),
				 len);
		memset(f->mem, 0, len);
		assert_int_equal(kvpool_get_into(f->ns, key, strlen(key),
						 f->mem, MEM, 0), len);
		assert_filled(f->mem, len, i);
	}
}

static void descriptors_and_mappings_outlive_the_key(void **state)
{
	struct fixture *f = *state;
	char *back = malloc(70000);
	const void *at;
	size_t len;
	int fd;

	put(f, "k", 70000, 1);
	put(f, "empty", 0, 1);
	fd = kvpool_open(f->other_ns, "k", 1);
	assert_true(fd >= 0);
	assert_int_equal(kvpool_map(f->other_ns, "k", 1, &at, &len), 0);
	assert_int_equal(kvpool_remove(f->ns, "k", 1), 0);
	assert_int_equal(kvpool_sync(f->pool), 0);
	assert_int_equal(kvpool_exists(f->other_ns, "k", 1), 0);
	assert_int_equal(kvpool_remove(f->ns, "k", 1), -ENOENT);
	assert_int_equal(pread(fd, back, 70000, 0), 70000);
	assert_filled(back, 70000, 1);
	assert_filled(at, len, 1);
	assert_int_equal(write(fd, back, 1), -1);
	kvpool_unmap(at, len);
	close(fd);
	free(back);
	assert_int_equal(kvpool_map(f->other_ns, "empty", 5, &at, &len), 0);
	assert_int_equal(len, 0);
	kvpool_unmap(at, len);
	assert_int_equal(kvpool_open(f->ns, "none", 4), -ENOENT);
}

/* Number of files in the second connection's buffer. */
static int objects_of_other(struct fixture *f)
{
	char path[160];
	struct dirent *e;
	int n = 0;
	DIR *d;

	snprintf(path, sizeof(path), "%s/1/store", f->buffer_dir);
	d = opendir(path);
	assert_non_null(d);
	while ((e = readdir(d)))
		n += strlen(e->d_name) == 16;
	closedir(d);
	return n;
}

static void what_another_host_has_lands_in_the_buffer(void **state)
{
	static const size_t sizes[] = { 1, 4096, 300000, 3 << 20 };
	struct fixture *f = *state;
	char *large = mmap(NULL, 12 << 20, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *gap = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (unsigned int i = 0; i < 4; i++) {
		put(f, "k", sizes[i], i);
		assert_int_equal(get_other(f, "k", MEM), sizes[i]);
		assert_filled(f->mem, sizes[i], i);
	}
	assert_int_equal(objects_of_other(f), 0);
	/* A large object moves in several pieces. */
	assert_int_equal(kvpool_register_buffer(f->pool, large, 12 << 20), 0);
	assert_int_equal(kvpool_register_buffer(f->other, large, 12 << 20), 0);
	fill(large, 11 << 20, 9);
	assert_int_equal(kvpool_put_from(f->ns, "large", 5, large, 11 << 20,
					 KVPOOL_SYNC), 0);
	memset(large, 0, 12 << 20);
	assert_int_equal(kvpool_get_into(f->other_ns, "large", 5, large,
					 12 << 20, 0), 11 << 20);
	assert_filled(large, 11 << 20, 9);
	assert_int_equal(objects_of_other(f), 0);
	/* A buffer that is not mapped is an error, and other calls go on. */
	assert_int_equal(kvpool_register_buffer(f->other, gap, 1 << 20), 0);
	munmap(gap + 4096, (1 << 20) - 4096);
	put(f, "k", 1 << 20, 1);
	assert_int_equal(kvpool_get_into(f->other_ns, "k", 1, gap, 1 << 20, 0),
			 -EFAULT);
	assert_int_equal(get_other(f, "k", MEM), 1 << 20);
	assert_filled(f->mem, 1 << 20, 1);
	assert_int_equal(kvpool_unregister_buffer(f->other, gap), 0);
	munmap(gap, 4096);
	/* The same for read-only memory, for each size and so each kind of
	 * transfer. */
	mprotect(large, 12 << 20, PROT_READ);
	for (unsigned int i = 0; i < 4; i++) {
		put(f, "k", sizes[i], i);
		assert_int_equal(kvpool_get_into(f->other_ns, "k", 1, large,
						 MEM, 0), -EFAULT);
		assert_int_equal(get_other(f, "k", MEM), sizes[i]);
	}
	assert_int_equal(kvpool_unregister_buffer(f->other, large), 0);
	munmap(large, 12 << 20);
}

static void batches_have_a_result_for_each_key(void **state)
{
	struct fixture *f = *state;
	enum { N = 300 };
	struct kvpool_key keys[N];
	struct kvpool_buf bufs[N];
	char names[N][16];
	int64_t ret[N];
	char outside[8] = "outside";

	for (unsigned int i = 0; i < N; i++) {
		snprintf(names[i], sizeof(names[i]), "key%u", i);
		keys[i] = (struct kvpool_key){ names[i], strlen(names[i]) };
		bufs[i] = (struct kvpool_buf){ f->mem + i * 8192, 8192 };
		fill(bufs[i].data, 8192, i);
	}
	bufs[7].data = outside;
	bufs[7].len = sizeof(outside);
	keys[8].len = KVPOOL_KEY_MAX + 1;
	assert_int_equal(kvpool_batch_put_from(f->ns, keys, bufs, N,
					       KVPOOL_SYNC, ret), N - 2);
	assert_int_equal(ret[7], -EFAULT);
	assert_int_equal(ret[8], -ENAMETOOLONG);
	assert_int_equal(ret[0], 0);
	keys[8].len = strlen(names[8]);
	assert_int_equal(kvpool_batch_exists(f->other_ns, keys, N, ret), N - 2);
	assert_int_equal(ret[7], 0);
	assert_int_equal(ret[N - 1], 1);
	assert_int_equal(kvpool_exists_prefix(f->other_ns, keys, N), 7);
	assert_int_equal(kvpool_exists_prefix(f->other_ns, keys + 9, N - 9),
			 N - 9);
	assert_int_equal(kvpool_exists_prefix(f->other_ns, keys, 0), 0);
	assert_int_equal(kvpool_batch_get_size(f->other_ns, keys, N, ret),
			 N - 2);
	assert_int_equal(ret[7], -ENOENT);
	assert_int_equal(ret[9], 8192);
	memset(f->mem, 0, N * 8192);
	bufs[7] = (struct kvpool_buf){ f->mem + 7 * 8192, 8192 };
	bufs[9].len = 8191;
	assert_int_equal(kvpool_batch_get_into(f->other_ns, keys, bufs, N, 0,
					       ret), N - 3);
	assert_int_equal(ret[7], -ENOENT);
	assert_int_equal(ret[9], -EMSGSIZE);
	for (unsigned int i = 10; i < N; i++) {
		assert_int_equal(ret[i], 8192);
		assert_filled(bufs[i].data, 8192, i);
	}
	assert_int_equal(kvpool_batch_pin(f->ns, keys, N, 60, ret), N - 2);
	assert_int_equal(kvpool_batch_touch(f->ns, keys, N, ret), N - 2);
	assert_int_equal(kvpool_batch_unpin(f->ns, keys, N, ret), N - 2);
	assert_int_equal(kvpool_batch_remove(f->ns, keys, N, ret), N - 2);
	assert_int_equal(kvpool_batch_exists(f->ns, keys, N, ret), 0);
}

static void questions_are_answered_for_many_keys(void **state)
{
	struct fixture *f = *state;
	enum { N = 5000 };
	struct kvpool_key *keys = calloc(N, sizeof(*keys));
	int64_t *ret = calloc(N, sizeof(*ret));
	char(*names)[16] = calloc(N, sizeof(*names));

	put(f, "k4999", 10, 1);
	put(f, "k0", 10, 1);
	for (unsigned int i = 0; i < N; i++) {
		snprintf(names[i], sizeof(names[i]), "k%u", i);
		keys[i] = (struct kvpool_key){ names[i], strlen(names[i]) };
	}
	assert_int_equal(kvpool_batch_exists(f->ns, keys, N, ret), 2);
	assert_int_equal(ret[4999], 1);
	assert_int_equal(kvpool_exists_prefix(f->ns, keys, N), 1);
	for (unsigned int i = 0; i < N; i++)
		keys[i] = (struct kvpool_key){ names[0], 2 };
	assert_int_equal(kvpool_exists_prefix(f->ns, keys, N), N);
	keys[3000].len = 1;
	assert_int_equal(kvpool_exists_prefix(f->ns, keys, N), 3000);
	free(keys);
	free(ret);
	free(names);
}

/* The query is executed before the touches submitted earlier; in the end all
 * are complete. */
static void touches_leave_the_machine_to_others_for_a_moment(void **state)
{
	struct fixture *f = *state;
	struct pollfd at = { .fd = kvpool_event_fd(f->pool), .events = POLLIN };
	struct kvpool_key k = { "k", 1 };
	struct kvpool_completion c;
	uint64_t begin = pool_now_ns();
	int64_t ret[3] = { -1, -1, -1 };

	put(f, "k", 10, 1);
	for (unsigned int i = 0; i < 2; i++)
		assert_int_equal(kvpool_submit(f->ns, KVPOOL_CALL_TOUCH, &k,
					       NULL, 1, 0, &ret[i], i), 0);
	assert_int_equal(kvpool_submit(f->ns, KVPOOL_CALL_EXISTS, &k, NULL, 1,
				       0, &ret[2], 2), 0);
	for (unsigned int left = 3; left > 0;) {
		assert_int_equal(poll(&at, 1, 10000), 1);
		if (!kvpool_completions(f->pool, &c, 1))
			continue;
		assert_int_equal(c.result, 1);
		if (c.id < 2)
			assert_true(pool_now_ns() - begin >= 2000000);
		left--;
	}
	assert_int_equal(ret[0], 0);
	assert_int_equal(ret[1], 0);
	assert_int_equal(ret[2], 1);
}

static void bad_input_is_an_error_with_a_text(void **state)
{
	struct fixture *f = *state;
	char *gap = mmap(NULL, 8192, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct kvpool_key k = { "k", 1 };
	struct kvpool_buf b = { f->mem, 10 };
	char stack[16] = "";
	int64_t ret;

	put(f, "k", 1000, 1);
	assert_int_equal(kvpool_get_into(f->ns, "k", 1, stack, 16, 0),
			 -EFAULT);
	assert_non_null(strstr(kvpool_last_error(), "registered"));
	assert_int_equal(kvpool_get_into(f->ns, "k", 1, f->mem + MEM - 10, 11,
					 0), -EFAULT);
	assert_int_equal(kvpool_get_into(f->ns, "k", 1, f->mem, 999, 0),
			 -EMSGSIZE);
	assert_non_null(strstr(kvpool_last_error(), "1000"));
	assert_int_equal(kvpool_get_into(f->ns, "k", 1, f->mem, 1001,
					 KVPOOL_EXACT), -EMSGSIZE);
	assert_int_equal(kvpool_get_into(f->ns, "k", 1, f->mem, 1000,
					 KVPOOL_EXACT), 1000);
	assert_int_equal(kvpool_put_from(f->ns, "k", 1, f->mem, 10, 1u << 9),
			 -EINVAL);
	assert_int_equal(kvpool_put_from(f->ns, NULL, 3, f->mem, 10, 0),
			 -EINVAL);
	assert_int_equal(kvpool_put_from(NULL, "k", 1, f->mem, 10, 0),
			 -EINVAL);
	assert_int_equal(kvpool_batch_put_from(f->ns, &k, NULL, 1, 0, &ret),
			 -EINVAL);
	assert_int_equal(kvpool_batch_exists(f->ns, NULL, 1, &ret), -EINVAL);
	assert_int_equal(kvpool_batch_get_into(f->ns, &k, &b, 1, 0, NULL),
			 -EINVAL);
	assert_int_equal(kvpool_batch_remove(f->ns, &k, KVPOOL_BATCH_MAX + 1,
					     &ret), -EINVAL);
	assert_int_equal(kvpool_submit(f->ns, (enum kvpool_call)99, &k, &b, 1,
				       0, &ret, 1), -EINVAL);
	assert_int_equal(kvpool_submit(f->ns, KVPOOL_CALL_PUT_FROM, &k, &b, 1,
				       1ull << 32, &ret, 1), -EINVAL);
	assert_int_equal(kvpool_pin(f->ns, "k", 1, UINT64_MAX), -EINVAL);
	assert_int_equal(kvpool_map(f->ns, "k", 1, NULL, NULL), -EINVAL);
	assert_int_equal(kvpool_key_path(NULL, "k", 1, stack, 16), -EINVAL);
	assert_int_equal(kvpool_key_path(f->ns, NULL, 1, stack, 16), -EINVAL);
	assert_int_equal(kvpool_path_key(f->ns, NULL, stack, 16), -EINVAL);
	assert_int_equal(kvpool_open_ns(f->pool, "x", NULL, NULL), -EINVAL);
	/* Registered, and then unmapped by the caller: no crash. */
	assert_int_equal(kvpool_register_buffer(f->pool, gap, 8192), 0);
	munmap(gap + 4096, 4096);
	assert_int_equal(kvpool_put_from(f->ns, "bad", 3, gap, 8192, 0),
			 -EFAULT);
	assert_int_equal(kvpool_exists(f->ns, "bad", 3), 0);
	put(f, "large", 8192, 1);
	assert_int_equal(kvpool_get_into(f->ns, "large", 5, gap, 8192, 0),
			 -EFAULT);
	assert_int_equal(kvpool_unregister_buffer(f->pool, gap), 0);
	munmap(gap, 4096);
	assert_int_equal(kvpool_register_buffer(f->pool, gap, 8192), -EFAULT);
	assert_string_equal(kvpool_strerror(-ENOENT), "not in the pool");
	assert_string_equal(kvpool_strerror(5), "success");
	assert_non_null(kvpool_strerror(INT64_MIN));
}

static void buffers_do_not_overlap(void **state)
{
	struct fixture *f = *state;
	char *m = mmap(NULL, 16384, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_int_equal(kvpool_register_buffer(f->pool, m + 4096, 4096), 0);
	assert_int_equal(kvpool_register_buffer(f->pool, m, 4096), 0);
	assert_int_equal(kvpool_register_buffer(f->pool, m, 4096), -EINVAL);
	assert_int_equal(kvpool_register_buffer(f->pool, m + 8191, 2),
			 -EINVAL);
	assert_int_equal(kvpool_register_buffer(f->pool, m, 16384), -EINVAL);
	assert_int_equal(kvpool_register_buffer(f->pool, m + 8192, 1), 0);
	assert_int_equal(kvpool_register_buffer(f->pool, m, 0), -EINVAL);
	assert_int_equal(kvpool_register_buffer(f->pool, NULL, 10), -EINVAL);
	assert_int_equal(kvpool_unregister_buffer(f->pool, m + 1), -ENOENT);
	assert_int_equal(kvpool_unregister_buffer(f->pool, m), 0);
	assert_int_equal(kvpool_unregister_buffer(f->pool, m), -ENOENT);
	assert_int_equal(kvpool_put_from(f->ns, "k", 1, m, 10, 0), -EFAULT);
	assert_int_equal(kvpool_put_from(f->ns, "k", 1, m + 4096, 10, 0), 0);
	munmap(m, 16384);
}

static void layouts_are_compared(void **state)
{
	struct fixture *f = *state;
	struct kvpool_layout a = { sizeof(a), "llama", "bf16", "NHD", 8, 256 };
	struct kvpool_layout b = a;
	struct {
		struct kvpool_layout l;
		char more[16];
	} newer = { .more = "" };
	struct kvpool_ns *ns, *same, *any;

	b.tp = 4;
	assert_int_equal(kvpool_open_ns(f->pool, "models/llama", &a, &ns), 0);
	assert_int_equal(kvpool_open_ns(f->other, "models/llama", &a, &same),
			 0);
	assert_int_equal(kvpool_open_ns(f->other, "models/llama", NULL, &any),
			 0);
	kvpool_close_ns(same);
	assert_int_equal(kvpool_open_ns(f->other, "models/llama", &b, &same),
			 -EMEDIUMTYPE);
	assert_non_null(strstr(kvpool_last_error(), "tp=8"));
	assert_non_null(strstr(kvpool_last_error(), "tp=4"));
	assert_int_equal(kvpool_put_from(ns, "k", 1, f->mem, 10, 0), 0);
	b.model = "a;b";
	assert_int_equal(kvpool_open_ns(f->other, "x", &b, &same), -EINVAL);
	b.struct_size = 1;
	assert_int_equal(kvpool_open_ns(f->other, "x", &b, &same), -EINVAL);
	/* A struct of a newer version: with its new members zero, and then
	 * set. */
	newer.l = a;
	newer.l.struct_size = sizeof(newer);
	assert_int_equal(kvpool_open_ns(f->other, "models/llama", &newer.l,
					&same), 0);
	kvpool_close_ns(same);
	newer.more[3] = 1;
	assert_int_equal(kvpool_open_ns(f->other, "models/llama", &newer.l,
					&same), -EINVAL);
	assert_int_equal(kvpool_open_ns(f->other, "../x", NULL, &same),
			 -EINVAL);
	assert_int_equal(kvpool_open_ns(f->other, ".kvpool", NULL, &same),
			 -EINVAL);
	put(f, "file", 10, 1);
	assert_int_equal(kvpool_open_ns(f->pool, "ns/file", NULL, &same),
			 -ENOTDIR);
	kvpool_close_ns(ns);
	kvpool_close_ns(any);
}

static void the_root_is_a_namespace(void **state)
{
	struct fixture *f = *state;
	struct kvpool_ns *root;

	assert_int_equal(kvpool_open_ns(f->pool, "", NULL, &root), 0);
	assert_int_equal(kvpool_put_from(root, ".kvpool", 7, f->mem, 10, 0),
			 0);
	assert_int_equal(kvpool_get_size(root, ".kvpool", 7), 10);
	put(f, "k", 10, 1);
	assert_int_equal(kvpool_exists(root, "ns", 2), 0);
	assert_int_equal(kvpool_put_from(root, "ns", 2, f->mem, 10, 0),
			 -EISDIR);
	assert_int_equal(kvpool_get_into(root, "ns", 2, f->mem, 10, 0),
			 -EISDIR);
	kvpool_close_ns(root);
}

/* Takes the completions of n requests; ret: results by id. */
static void complete(struct fixture *f, size_t n, int64_t *ret)
{
	struct pollfd at = { .fd = kvpool_event_fd(f->pool), .events = POLLIN };
	struct kvpool_completion c[7];
	size_t k;

	while (n > 0) {
		assert_int_equal(poll(&at, 1, 20000), 1);
		k = kvpool_completions(f->pool, c, 7);
		for (size_t i = 0; i < k; i++)
			ret[c[i].id] = c[i].result;
		n -= k;
	}
	assert_int_equal(poll(&at, 1, 0), 0);
	assert_int_equal(kvpool_completions(f->pool, c, 7), 0);
}

static void requests_complete_through_one_eventfd(void **state)
{
	struct fixture *f = *state;
	enum { N = 100 };
	int64_t ret[N], done[N];
	struct kvpool_buf b;
	struct kvpool_key k;
	char key[16];

	k.data = key;
	for (unsigned int i = 0; i < N; i++) {
		snprintf(key, sizeof(key), "key%u", i);
		k.len = strlen(key);
		b = (struct kvpool_buf){ f->mem + i * 4096, 4096 };
		fill(b.data, 4096, i);
		assert_int_equal(kvpool_submit(f->ns, KVPOOL_CALL_PUT_FROM, &k,
					       &b, 1, 0, &ret[i], i), 0);
	}
	complete(f, N, done);
	for (unsigned int i = 0; i < N; i++)
		assert_int_equal(ret[i] + done[i], 1);
	memset(f->mem, 0, N * 4096);
	for (unsigned int i = 0; i < N; i++) {
		snprintf(key, sizeof(key), "key%u", i);
		k.len = strlen(key);
		b = (struct kvpool_buf){ f->mem + i * 4096, 4096 };
		assert_int_equal(kvpool_submit(f->ns, KVPOOL_CALL_GET_INTO, &k,
					       &b, 1, 0, &ret[i], i), 0);
	}
	complete(f, N, done);
	for (unsigned int i = 0; i < N; i++) {
		assert_int_equal(ret[i], 4096);
		assert_filled(f->mem + i * 4096, 4096, i);
	}
	for (int call_ = KVPOOL_CALL_GET_SIZE;
	     call_ <= KVPOOL_CALL_EXISTS_PREFIX; call_++)
		assert_int_equal(kvpool_submit(f->ns, (enum kvpool_call)call_,
					       &k, NULL, 1, 0, &ret[call_],
					       (uint64_t)call_), 0);
	complete(f, KVPOOL_CALL_EXISTS_PREFIX - KVPOOL_CALL_GET_SIZE + 1, done);
	assert_int_equal(ret[KVPOOL_CALL_REMOVE], 0);
}

struct user {
	struct fixture *f;
	pthread_t thread;
	unsigned int number, wrong;
};

static void *use(void *arg)
{
	struct user *u = arg;
	size_t len = 100000, part = MEM / 8;
	char *mem = u->f->mem + u->number * part, key[32], *want = malloc(len);
	struct kvpool_key k[2] = { { key, 0 }, { "none", 4 } };

	for (unsigned int i = 0; i < 60; i++) {
		unsigned int seed = u->number * 1000 + i;

		snprintf(key, sizeof(key), "u%u-%u", u->number, i % 5);
		k[0].len = strlen(key);
		fill(want, len, seed);
		memcpy(mem, want, len);
		u->wrong += kvpool_put_from(u->f->ns, key, strlen(key), mem,
					    len, 0) != 0;
		memset(mem, 0, len);
		u->wrong += kvpool_exists_prefix(u->f->ns, k, 2) != 1;
		u->wrong += kvpool_get_into(u->f->ns, key, strlen(key), mem,
					    part, 0) != (int64_t)len;
		u->wrong += memcmp(mem, want, len) != 0;
		if (i % 7 == 0)
			u->wrong += kvpool_remove(u->f->ns, key,
						  strlen(key)) != 0;
		/* Reads one whole version of the object, or misses. */
		int64_t got = kvpool_get_into(u->f->other_ns, key, strlen(key),
					      mem, part, KVPOOL_EXACT);
		u->wrong += got != -EMSGSIZE && got != -ENOENT;
	}
	free(want);
	return NULL;
}

static void many_threads_use_one_connection(void **state)
{
	struct fixture *f = *state;
	struct user u[8];

	for (unsigned int i = 0; i < 8; i++) {
		u[i] = (struct user){ .f = f, .number = i };
		assert_int_equal(pthread_create(&u[i].thread, NULL, use, &u[i]),
				 0);
	}
	for (unsigned int i = 0; i < 8; i++) {
		pthread_join(u[i].thread, NULL);
		assert_int_equal(u[i].wrong, 0);
	}
}

static void without_a_master_it_goes_on(void **state)
{
	struct fixture *f = *state;

	put(f, "k", 100000, 1);
	call(f, on_stop_master);
	assert_int_equal(kvpool_exists(f->other_ns, "k", 1), 1);
	assert_int_equal(get_other(f, "k", MEM), 100000);
	assert_filled(f->mem, 100000, 1);
	assert_int_equal(kvpool_put_from(f->ns, "l", 1, f->mem, 5000, 0), 0);
	assert_int_equal(kvpool_get_size(f->ns, "l", 1), 5000);
	assert_int_equal(kvpool_sync(f->pool), -ETIMEDOUT);
}

static void without_a_holder_it_is_a_miss(void **state)
{
	struct fixture *f = *state;
	int64_t n;

	put(f, "k", 100000, 1);
	call(f, on_stop_stores);
	/* Lost in its stores; the client that put it may have its copy. */
	n = get_other(f, "k", MEM);
	assert_true(n == -ENOENT || n == 100000);
	if (n > 0)
		assert_filled(f->mem, 100000, 1);
}

static void a_child_is_refused(void **state)
{
	struct fixture *f = *state;
	int status;
	pid_t pid;

	put(f, "k", 10, 1);
	pid = fork();
	if (pid == 0)
		_exit(kvpool_exists(f->ns, "k", 1) == -ECHILD &&
		      kvpool_put_from(f->ns, "k", 1, f->mem, 1, 0) == -ECHILD &&
		      kvpool_close(f->pool) == -ECHILD ? 0 : 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static bool is_child;

/* LeakSanitizer checks at exit. Memory of the parent's other threads is a leak
 * in the child. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return is_child;
}

/* The address is a host name, whose look-up uses libuv's thread pool. */
static void a_child_may_exit(void **state)
{
	struct fixture *f = *state;
	char at[sizeof(f->at)];
	int status;
	pid_t pid;

	snprintf(at, sizeof(at), "localhost%s", strrchr(f->at, ':'));
	memcpy(f->at, at, sizeof(at));
	assert_int_equal(kvpool_close(connected(f)), 0);
	pid = fork();
	if (pid == 0) {
		is_child = true;
		alarm(20); /* not inherited: ends a child that hangs */
		exit(3);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 3);
}

/* A directory with objects for another pool is not touched. */
static void what_was_left_is_for_its_own_pool(void **state)
{
	struct fixture *f = *state;
	char dir[200], object[240], cmd[700];
	struct stat st;

	snprintf(dir, sizeof(dir), "%s/2", f->buffer_dir); /* 0, 1: of f */
	snprintf(object, sizeof(object), "%s/store/0123456789abcdef", dir);
	assert_int_equal(kvpool_close(connected(f)), 0); /* makes it */
	snprintf(cmd, sizeof(cmd), "echo data >%s && echo 127.0.0.1:1 >%s/pool",
		 object, dir);
	assert_int_equal(system(cmd), 0);
	assert_int_equal(kvpool_close(connected(f)), 0);
	assert_int_equal(stat(object, &st), 0);
	assert_int_equal(st.st_size, 5);
	snprintf(dir, sizeof(dir), "%s/3/store", f->buffer_dir);
	assert_int_equal(stat(dir, &st), 0);
	/* A damaged object for this pool is removed. */
	snprintf(cmd, sizeof(cmd), "echo %s >%s/2/pool", f->at, f->buffer_dir);
	assert_int_equal(system(cmd), 0);
	assert_int_equal(kvpool_close(connected(f)), 0);
	assert_int_equal(stat(object, &st), -1);
}

static void more_than_the_buffer_is_put_in_turn(void **state)
{
	struct fixture *f = *state;
	char key[16];

	/* 36 MiB through a buffer of 24 MiB. */
	for (unsigned int i = 0; i < 12; i++) {
		snprintf(key, sizeof(key), "big%u", i);
		fill(f->mem, 3 << 20, i);
		assert_int_equal(kvpool_put_from(f->ns, key, strlen(key),
						 f->mem, 3 << 20, 0), 0);
	}
	assert_all_there(f, "big", 12, 3 << 20);
}

/* Puts keys [from, to) after all earlier ones are stored. */
static void put_more(struct fixture *f, const char *form, unsigned int from,
		     unsigned int to)
{
	char key[32];

	assert_int_equal(kvpool_sync(f->pool), 0);
	for (unsigned int i = from; i < to; i++) {
		snprintf(key, sizeof(key), "%s%u", form, i);
		fill(f->mem, 1 << 20, i);
		assert_int_equal(kvpool_put_from(f->ns, key, strlen(key),
						 f->mem, 1 << 20, 0), 0);
	}
}

/* name: preceded by a line feed, so that it matches the value's line. */
static unsigned int counted(struct fixture *f, const char *name)
{
	unsigned int n = 0;
	char *text, *at;
	size_t len;

	/* As the loop, whose values are printed. */
	pthread_rwlock_wrlock(&f->pool->lock);
	assert_int_equal(pool_metrics_print(f->pool->metrics, &text, &len), 0);
	pthread_rwlock_unlock(&f->pool->lock);
	at = strstr(text, name);
	assert_non_null(at);
	assert_int_equal(sscanf(at + strlen(name), "%u", &n), 1);
	free(text);
	return n;
}

static unsigned int reused(struct fixture *f)
{
	return counted(f, "\nkvpool_store_takes_total{result=\"reused\"} ");
}

static unsigned int evicted(struct fixture *f)
{
	return counted(f, "\nkvpool_node_evicted_cached_total ");
}

/* As if each object had been sent twice, and one of the transfers were perhaps
 * not complete: its pages must not be reused. */
static void send_all_twice(struct fixture *f)
{
	struct pool_list *it, *tmp;
	struct node_dirent *dir;

	pthread_rwlock_wrlock(&f->pool->lock);
	assert_int_equal(client_ns_dir(f->ns, &dir), 0);
	pool_list_each(it, tmp, &dir->d.children) {
		struct pool_entry *e =
			pool_list_entry(it, struct pool_entry, sibling);
		struct node_entry *file = node_file(e);

		if (file && file->obj)
			file->obj->gets = 2;
	}
	pthread_rwlock_unlock(&f->pool->lock);
}

/* Fills the buffer until puts reuse the pages of evicted objects. What the
 * stores write to the same filesystem may count as use of the buffer until the
 * next count, and evict copies early; so this is repeated. */
static void begin_reuse(struct fixture *f)
{
	uint64_t end = pool_now_ms() + 30000;

	do {
		put_more(f, "first", 0, 24);
		put_more(f, "second", 0, 12);
	} while (reused(f) < 3 && pool_now_ms() < end);
	assert_true(reused(f) >= 3);
	assert_int_equal(kvpool_sync(f->pool), 0);
}

static void puts_take_the_pages_of_what_is_stored(void **state)
{
	struct fixture *f = *state;
	unsigned int before, went;

	begin_reuse(f);
	assert_all_there(f, "first", 24, 1 << 20);
	assert_all_there(f, "second", 12, 1 << 20);

	before = reused(f);
	went = evicted(f);
	/* More than fits. Space that others free may count as free until the
	 * next count, and then more must be evicted. */
	for (unsigned int i = 0; i < 30 || evicted(f) == went; i++) {
		assert_int_equal(kvpool_sync(f->pool), 0);
		send_all_twice(f);
		put_more(f, "third", i % 30, i % 30 + 1);
	}
	assert_int_equal(reused(f), before);
	assert_all_there(f, "third", 30, 1 << 20);
}

/* An empty object must not reuse pages: nothing overwrites them. */
static void an_empty_object_has_nothing_of_another(void **state)
{
	struct fixture *f = *state;
	char key[32];

	begin_reuse(f);
	for (unsigned int i = 0; i < 4; i++) {
		snprintf(key, sizeof(key), "empty%u", i);
		assert_int_equal(kvpool_put_from(f->ns, key, strlen(key), NULL,
						 0, 0), 0);
		assert_int_equal(kvpool_get_size(f->ns, key, strlen(key)), 0);
		assert_int_equal(kvpool_sync(f->pool), 0);
		assert_int_equal(kvpool_get_size(f->ns, key, strlen(key)), 0);
		assert_int_equal(kvpool_get_into(f->ns, key, strlen(key),
						 f->mem, MEM, 0), 0);
	}
}

#define PIPED ((size_t)64 << 10)

/* Splices the first pages of an object into a pipe, without a copy; its
 * descriptor is closed. */
static int pipe_pages(struct fixture *f, const char *key)
{
	int fd = kvpool_open(f->ns, key, strlen(key)), to[2];
	loff_t at = 0;

	assert_true(fd >= 0);
	assert_int_equal(pipe(to), 0);
	assert_int_equal(splice(fd, &at, to[1], NULL, PIPED, 0), PIPED);
	close(fd);
	close(to[1]);
	return to[0];
}

static void assert_piped(struct fixture *f, int from, unsigned int seed)
{
	char *got = f->mem + (2 << 20);

	fill(f->mem, 1 << 20, seed);
	for (size_t n = 0; n < PIPED; n += 4096)
		assert_int_equal(read(from, got + n, 4096), 4096);
	close(from);
	assert_memory_equal(got, f->mem, PIPED);
}

/* Bytes read through a descriptor never change, even while they are in a
 * pipe. */
static void what_was_read_by_descriptor_does_not_change(void **state)
{
	struct fixture *f = *state;
	unsigned int i, went;
	int from[36];
	char key[32];

	begin_reuse(f);
	for (i = 0; i < 36; i++) {
		snprintf(key, sizeof(key), i < 24 ? "first%u" : "second%u",
			 i < 24 ? i : i - 24);
		from[i] = pipe_pages(f, key);
	}
	went = evicted(f);
	put_more(f, "third", 0, 12);
	put_more(f, "fourth", 0, 12);
	assert_true(evicted(f) > went);
	for (i = 0; i < 36; i++)
		assert_piped(f, from[i], i < 24 ? i : i - 24);
}

/* The lender cannot know what a borrower does with a descriptor. */
static void what_was_lent_is_not_written_again(void **state)
{
	struct fixture *f = *state;
	struct node_entry *e;
	struct node_dirent *dir;
	unsigned int lent;
	bool given;
	int fd, err;

	call(f, on_stop_stores); /* so that this connection lends */
	fill(f->mem, 1 << 20, 1);
	assert_int_equal(kvpool_put_from(f->ns, "k", 1, f->mem, 1 << 20, 0), 0);
	unit_poll_until(kvpool_exists(f->other_ns, "k", 1) == 1);
	fd = kvpool_open(f->other_ns, "k", 1);
	assert_true(fd >= 0);
	close(fd);
	pthread_rwlock_rdlock(&f->pool->lock);
	err = client_ns_dir(f->ns, &dir);
	e = err ? NULL : node_file(client_find(f->pool, dir, "k", 1));
	lent = e && e->obj ? e->obj->lent : 0;
	given = lent && node_object_given(e->obj);
	pthread_rwlock_unlock(&f->pool->lock);
	assert_int_equal(lent, 1);
	assert_true(given);
	call(f, on_start_stores);
	assert_int_equal(kvpool_sync(f->pool), 0);
}

/* Stores and buffers share a filesystem with programs that write to it. */
static void what_neighbours_write_evicts_nothing(void **state)
{
	struct fixture *f = *state;
	char key[16], path[96];
	unsigned int i;
	int fd;

	snprintf(path, sizeof(path), "%s/neighbour", top);
	fd = open(path, O_CREAT | O_RDWR, 0600);
	for (i = 0; i < 12; i++) {
		snprintf(key, sizeof(key), "near%u", i);
		fill(f->mem, 3 << 20, i);
		assert_int_equal(kvpool_put_from(f->ns, key, strlen(key),
						 f->mem, 3 << 20, 0), 0);
		assert_int_equal(fallocate(fd, 0, i * (16 << 20), 16 << 20), 0);
		usleep(50000);
	}
	assert_all_there(f, "near", 12, 3 << 20);
	close(fd);
	unlink(path);
}

static void a_failed_connect_names_the_reason(void **state)
{
	struct fixture *f = *state;
	struct kvpool_options o = { .struct_size = sizeof(o),
				    .at = "127.0.0.1:1",
				    .buffer_dir = f->buffer_dir,
				    .buffer_size = 8u << 20,
				    .timeout_ms = 300 };
	struct kvpool *pool = NULL;

	assert_int_equal(kvpool_connect(&o, &pool), -EHOSTDOWN);
	assert_non_null(strstr(kvpool_last_error(), "127.0.0.1:1"));
	o.at = "no/where";
	assert_int_equal(kvpool_connect(&o, &pool), -EINVAL);
	o.at = "/dev/shm";
	assert_int_equal(kvpool_connect(&o, &pool), -ENOTSUP);
	o.at = f->at;
	o.listen = "0.0.0.0:0";
	assert_int_equal(kvpool_connect(&o, &pool), -EINVAL);
	assert_non_null(strstr(kvpool_last_error(), "KVPOOL_INSECURE"));
	o.listen = NULL;
	o.buffer_size = 1ull << 50;
	assert_int_equal(kvpool_connect(&o, &pool), -ENOSPC);
	o.buffer_size = 8u << 20;
	o.struct_size = 3;
	assert_int_equal(kvpool_connect(&o, &pool), -EINVAL);
	o.struct_size = sizeof(o);
	o.buffer_dir = "/dev/null/x";
	assert_int_equal(kvpool_connect(&o, &pool), -ENOTDIR);
	assert_int_equal(kvpool_connect(NULL, &pool), -EINVAL);
	assert_int_equal(kvpool_close(NULL), 0);
	assert_null(pool);
}

/* Any user can create this link in /dev/shm, the default. */
static void a_link_that_another_user_made_is_no_buffer(void **state)
{
	struct fixture *f = *state;
	char link[160];
	struct kvpool_options o = { .struct_size = sizeof(o), .at = f->at,
				    .buffer_dir = link,
				    .buffer_size = 8u << 20 };
	struct kvpool *pool = NULL;

	if (getuid() != 0) {
		print_message("skipped: needs root, to be another user\n");
		skip();
	}
	snprintf(link, sizeof(link), "%s/link", top);
	assert_int_equal(symlink(f->buffer_dir, link), 0);
	assert_int_equal(kvpool_connect(&o, &pool), 0); /* root's own */
	assert_int_equal(kvpool_close(pool), 0);
	assert_int_equal(lchown(link, 65534, 65534), 0);
	assert_int_equal(kvpool_connect(&o, &pool), -EPERM);
	assert_non_null(strstr(kvpool_last_error(), "set buffer_dir to"));
	assert_int_equal(unlink(link), 0);
}

static void directories_are_used_again(void **state)
{
	struct fixture *f = *state;
	char path[160];
	struct stat st;

	for (int i = 0; i < 3; i++) {
		assert_int_equal(kvpool_close(connected(f)), 0);
		snprintf(path, sizeof(path), "%s/2", f->buffer_dir);
		assert_int_equal(stat(path, &st), 0);
		snprintf(path, sizeof(path), "%s/3", f->buffer_dir);
		assert_int_equal(stat(path, &st), -1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define L(t)                                                       \
	{                                                          \
		#t " (descriptors are lent)", t, setup_local, teardown, NULL \
	}
		T(what_one_puts_another_gets),
		L(what_one_puts_another_gets),
		T(keys_are_any_bytes),
		T(a_key_and_those_below_it_are_different),
		T(temporary_names_are_no_keys),
		T(a_put_replaces_what_was_there),
		T(a_put_is_visible_at_once_to_its_client),
		T(descriptors_and_mappings_outlive_the_key),
		L(descriptors_and_mappings_outlive_the_key),
		T(what_another_host_has_lands_in_the_buffer),
		T(batches_have_a_result_for_each_key),
		L(batches_have_a_result_for_each_key),
		T(questions_are_answered_for_many_keys),
		T(touches_leave_the_machine_to_others_for_a_moment),
		T(bad_input_is_an_error_with_a_text),
		T(buffers_do_not_overlap),
		T(layouts_are_compared),
		T(the_root_is_a_namespace),
		T(requests_complete_through_one_eventfd),
		T(many_threads_use_one_connection),
		L(many_threads_use_one_connection),
		T(without_a_master_it_goes_on),
		T(without_a_holder_it_is_a_miss),
		T(a_child_is_refused),
		T(a_child_may_exit),
		T(what_was_left_is_for_its_own_pool),
		T(more_than_the_buffer_is_put_in_turn),
		T(puts_take_the_pages_of_what_is_stored),
		T(an_empty_object_has_nothing_of_another),
		T(what_was_read_by_descriptor_does_not_change),
		{ "what_was_lent_is_not_written_again",
		  what_was_lent_is_not_written_again, setup_local, teardown,
		  NULL },
		T(what_neighbours_write_evicts_nothing),
		T(a_failed_connect_names_the_reason),
		T(a_link_that_another_user_made_is_no_buffer),
		T(directories_are_used_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
