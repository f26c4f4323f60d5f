/* libkvpool: transfers of objects, and their failures. */
#include "tests/unit/client_pool.h"

#include "pool/client/line.h"
#include "pool/conn/conn.h"
#include "pool/conn/kvpool.pb-c.h"

/* ---- lines, to a holder that is played ---- */

enum played { ANSWERS, REFUSES, IS_SILENT, IS_ANOTHER, LIES, PAUSES };

#define PAUSE_AT ((256u + 120u) << 10) /* within the second slice */

struct holder {
	int listen_fd;
	struct pool_peer_addr addr;
	_Atomic int how;
	_Atomic unsigned int greeted;
	pthread_t thread;
	_Atomic int ask_fd, bulk_fd;
};

static void say(int fd, uint16_t type, uint64_t req, const void *payload,
		size_t len, uint64_t bulk)
{
	uint8_t header[POOL_WIRE_HEADER];
	struct pool_frame f = { .version = POOL_WIRE_VERSION, .type = type,
				.req = req, .payload_len = (uint32_t)len,
				.bulk_len = bulk };

	pool_frame_encode(&f, header);
	(void)!send(fd, header, sizeof(header), MSG_NOSIGNAL);
	(void)!send(fd, payload, len, MSG_NOSIGNAL);
}

static void greet(struct holder *h, int fd, const Kvpool__Hello *from)
{
	Kvpool__Hello hello = KVPOOL__HELLO__INIT;
	uint8_t buf[128], id[POOL_ID_SIZE];

	memcpy(id, h->addr.id, sizeof(id));
	id[0] ^= h->how == IS_ANOTHER;
	hello.version = POOL_WIRE_VERSION;
	hello.id.data = id;
	hello.id.len = sizeof(id);
	hello.lane = from->lane;
	h->greeted++;
	if (from->lane)
		h->bulk_fd = fd;
	else
		h->ask_fd = fd;
	say(fd, POOL_MSG_HELLO, 0, buf, kvpool__hello__pack(&hello, buf), 0);
}

static void give(struct holder *h, uint64_t req, const Kvpool__Get *get)
{
	char *bytes = malloc(get->length);
	Kvpool__Error e = KVPOOL__ERROR__INIT;
	int fd = get->lane ? h->bulk_fd : h->ask_fd;
	uint8_t buf[64];

	e.status = -ENOENT;
	fill(bytes, get->length, (unsigned int)get->gen);
	switch (h->how) {
	case ANSWERS:
		say(fd, POOL_MSG_DATA, req, NULL, 0, get->length);
		(void)!send(fd, bytes, get->length, MSG_NOSIGNAL);
		break;
	case PAUSES:
		say(fd, POOL_MSG_DATA, req, NULL, 0, get->length);
		(void)!send(fd, bytes, PAUSE_AT, MSG_NOSIGNAL);
		usleep(200000);
		(void)!send(fd, bytes + PAUSE_AT, get->length - PAUSE_AT,
			    MSG_NOSIGNAL);
		break;
	case REFUSES:
		say(h->ask_fd, POOL_MSG_ERROR, req, buf,
		    kvpool__error__pack(&e, buf), 0);
		break;
	case LIES:
		say(h->ask_fd, POOL_MSG_LENT, req, NULL, 0, get->length);
		break;
	}
	free(bytes);
}

/* Receives one frame on fd. False: the peer has closed. */
static bool receive(struct holder *h, int fd)
{
	uint8_t header[POOL_WIRE_HEADER], payload[8192];
	struct pool_frame f;

	if (recv(fd, header, sizeof(header), MSG_WAITALL) != sizeof(header) ||
	    pool_frame_decode(header, &f) || f.payload_len > sizeof(payload) ||
	    recv(fd, payload, f.payload_len, MSG_WAITALL) != f.payload_len)
		return false;
	if (f.type == POOL_MSG_HELLO) {
		Kvpool__Hello *hello = kvpool__hello__unpack(
			NULL, f.payload_len, payload);

		greet(h, fd, hello);
		kvpool__hello__free_unpacked(hello, NULL);
	} else {
		Kvpool__Get *get = kvpool__get__unpack(NULL, f.payload_len,
						       payload);

		give(h, f.req, get);
		kvpool__get__free_unpacked(get, NULL);
	}
	return true;
}

static void *play(void *arg)
{
	struct holder *h = arg;
	struct pollfd at[16] = { { .fd = h->listen_fd, .events = POLLIN } };
	nfds_t n = 1, i;

	for (;;) {
		poll(at, n, -1);
		for (i = 1; i < n; i++)
			if (at[i].revents && !receive(h, at[i].fd)) {
				close(at[i].fd);
				at[i] = at[--n];
				break;
			}
		if (at[0].revents & (POLLHUP | POLLERR))
			break;
		if (at[0].revents && n < 16)
			at[n++] = (struct pollfd){
				.fd = accept(h->listen_fd, NULL, NULL),
				.events = POLLIN };
	}
	for (i = 1; i < n; i++)
		close(at[i].fd);
	return NULL;
}

static void holder_start(struct holder *h, struct client_lines *lines)
{
	struct sockaddr_in sa = { .sin_family = AF_INET };
	socklen_t len = sizeof(sa);

	memset(h, 0, sizeof(*h));
	memset(lines, 0, sizeof(*lines));
	memset(h->addr.id, 7, POOL_ID_SIZE);
	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	h->listen_fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(bind(h->listen_fd, (void *)&sa, sizeof(sa)), 0);
	assert_int_equal(listen(h->listen_fd, 8), 0);
	getsockname(h->listen_fd, (void *)&sa, &len);
	strcpy(h->addr.tcp.host, "127.0.0.1");
	h->addr.tcp.port = ntohs(sa.sin_port);
	assert_int_equal(pthread_create(&h->thread, NULL, play, h), 0);
	client_lines_init(lines);
	lines->first_lane = 3;
	lines->stall_ms = 20000; /* for busy machines */
}

static void holder_end(struct holder *h, struct client_lines *lines)
{
	client_lines_fini(lines);
	shutdown(h->listen_fd, SHUT_RDWR);
	pthread_join(h->thread, NULL);
	close(h->listen_fd);
}

/* Receives the next answer, which must be that of `req`, with the right
 * bytes. */
static void assert_comes(struct client_line *l, uint64_t req, size_t size)
{
	struct client_answer a;
	char *buf = malloc(size);
	size_t done = 0;
	ssize_t n;

	assert_int_equal(client_line_answer(
		l, size > POOL_INLINE_MAX ? size : 0, &a), 0);
	assert_true(a.data);
	assert_int_equal(a.req, req);
	assert_int_equal(a.size, size);
	while (done < size) {
		n = client_line_bytes(l, &a, buf + done, size - done);
		assert_true(n > 0);
		done += (size_t)n;
	}
	assert_filled(buf, size, (unsigned int)req);
	free(buf);
}

static void a_line_brings_what_is_asked_for(void **state)
{
	static const size_t sizes[] = { 1, 4096, 1 << 20, POOL_INLINE_MAX,
					POOL_INLINE_MAX + 1 };
	struct client_lines lines;
	struct client_line *l;
	struct holder h;

	(void)state;
	holder_start(&h, &lines);
	for (unsigned int round = 0; round < 3; round++) {
		l = client_line_take(&lines, &h.addr, true);
		assert_non_null(l);
		for (unsigned int i = 0; i < 5; i++) {
			assert_int_equal(client_line_ask(l, i, "k", 1, i,
							 sizes[i]), 0);
			assert_int_equal(client_line_send(l), 0);
			assert_comes(l, i, sizes[i]);
		}
		client_line_give(l, true);
	}
	assert_int_equal(h.greeted, 2); /* one line, of two connections */
	holder_end(&h, &lines);
}

/* The rest of an object is less than a slice. The client reads it as soon as it
 * arrives. */
static void
a_pause_before_the_last_bytes_is_all_that_is_waited_for(void **state)
{
	struct client_lines lines;
	struct client_line *l;
	struct holder h;
	uint64_t begin;

	(void)state;
	holder_start(&h, &lines);
	h.how = PAUSES;
	l = client_line_take(&lines, &h.addr, true);
	assert_non_null(l);
	begin = pool_now_ms();
	assert_int_equal(client_line_ask(l, 1, "k", 1, 1, PAUSE_AT + 80000),
			 0);
	assert_int_equal(client_line_send(l), 0);
	assert_comes(l, 1, PAUSE_AT + 80000);
	assert_true(pool_now_ms() - begin < lines.stall_ms / 2);
	client_line_give(l, true);
	holder_end(&h, &lines);
}

static void what_is_refused_leaves_the_line_as_it_was(void **state)
{
	struct client_lines lines;
	struct client_answer a;
	struct client_line *l;
	struct holder h;

	(void)state;
	holder_start(&h, &lines);
	l = client_line_take(&lines, &h.addr, true);
	h.how = REFUSES;
	assert_int_equal(client_line_ask(l, 1, "k", 1, 1, 1 << 20), 0);
	assert_int_equal(client_line_send(l), 0);
	assert_int_equal(client_line_answer(l, 1 << 20, &a), 0);
	assert_false(a.data);
	assert_int_equal(a.req, 1);
	h.how = ANSWERS;
	assert_int_equal(client_line_ask(l, 2, "k", 1, 2, 1 << 20), 0);
	assert_int_equal(client_line_send(l), 0);
	assert_comes(l, 2, 1 << 20);
	client_line_give(l, true);
	holder_end(&h, &lines);
}

/* Takes a line, however long its handshake takes. */
static struct client_line *greeted(struct holder *h, struct client_lines *lines)
{
	struct client_line *l;

	while (!(l = client_line_take(lines, &h->addr, true)))
		memset(lines->backoff, 0, sizeof(lines->backoff));
	return l;
}

static void a_bad_holder_is_backed_off(void **state)
{
	static const int ways[] = { IS_SILENT, LIES };
	struct client_lines lines;
	struct client_answer a;
	struct client_line *l;
	struct holder h;

	(void)state;
	for (unsigned int i = 0; i < 4; i++) {
		holder_start(&h, &lines);
		h.how = ways[i % 2];
		if (h.how == IS_SILENT)
			lines.stall_ms = 50;
		l = greeted(&h, &lines);
		assert_int_equal(client_line_ask(l, 1, "k", 1, 1,
						 i < 2 ? 100 : 1 << 20), 0);
		assert_int_equal(client_line_send(l), 0);
		assert_int_equal(client_line_answer(l, i < 2 ? 0 : 1 << 20,
						    &a),
				 ways[i % 2] == LIES ? -EPROTO : -ETIMEDOUT);
		client_line_give(l, false);
		assert_null(client_line_take(&lines, &h.addr, false));
		assert_int_equal(lines.slots, 0);
		holder_end(&h, &lines);
	}
}

static void another_node_at_its_address_is_not_asked(void **state)
{
	struct client_lines lines;
	struct holder h;

	(void)state;
	holder_start(&h, &lines);
	h.how = IS_ANOTHER;
	assert_null(client_line_take(&lines, &h.addr, false));
	assert_int_equal(lines.slots, 0);
	holder_end(&h, &lines);
}

static void a_line_that_its_peer_has_closed_is_dialled_again(void **state)
{
	struct client_lines lines;
	struct client_line *l;
	struct holder h;

	(void)state;
	holder_start(&h, &lines);
	l = client_line_take(&lines, &h.addr, false);
	client_line_give(l, true);
	shutdown(h.ask_fd, SHUT_RDWR);
	l = client_line_take(&lines, &h.addr, false);
	assert_non_null(l);
	assert_int_equal(h.greeted, 2);
	assert_int_equal(__builtin_popcountll(lines.slots), 1);
	assert_int_equal(client_line_ask(l, 1, "k", 1, 1, 100), 0);
	assert_int_equal(client_line_send(l), 0);
	assert_comes(l, 1, 100);
	client_line_give(l, true);
	holder_end(&h, &lines);
}

/* ---- gets ---- */

/* Changes one byte of each file of the stores. Returns how many. */
static int damage(struct fixture *f)
{
	char path[512], byte = 'x';
	struct dirent *e;
	int n = 0, fd;
	DIR *d;

	for (int i = 0; i < STORES; i++) {
		d = opendir(f->s[i].dir);
		assert_non_null(d);
		while ((e = readdir(d))) {
			if (strlen(e->d_name) != 16)
				continue;
			snprintf(path, sizeof(path), "%s/%s", f->s[i].dir,
				 e->d_name);
			chmod(path, 0600);
			fd = open(path, O_WRONLY);
			assert_int_equal(pwrite(fd, &byte, 1, 50), 1);
			close(fd);
			n++;
		}
		closedir(d);
	}
	return n;
}

static void wrong_bytes_are_never_a_hit(void **state)
{
	static const size_t sizes[] = { 4096, 300000, 3 << 20 };
	struct fixture *f = *state;
	char key[16];
	int64_t n;

	for (unsigned int i = 0; i < 3; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		put(f, key, sizes[i], i);
	}
	assert_true(damage(f) >= 3);
	for (unsigned int i = 0; i < 3; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		n = get_other(f, key, MEM);
		/* The client that put it may still have its copy. */
		assert_true(n == -ENOENT || n == (int64_t)sizes[i]);
		if (n > 0)
			assert_filled(f->mem, sizes[i], i);
	}
}

static void on_sleep(struct pool_mail *mail)
{
	struct fixture *f = pool_container_of(mail, struct fixture, mail);

	usleep(700000);
	uv_sem_post(&f->done);
}

static void a_holder_that_stands_still_is_waited_for(void **state)
{
	struct fixture *f = *state;

	put(f, "k", 1 << 20, 1);
	put(f, "l", 4096, 2);
	assert_int_equal(get_other(f, "l", MEM), 4096);
	for (unsigned int i = 0; i < 2; i++) {
		pool_mailbox_post(&f->box, &f->mail, on_sleep);
		assert_int_equal(get_other(f, i ? "l" : "k", MEM),
				 i ? 4096 : 1 << 20);
		assert_filled(f->mem, i ? 4096 : 1 << 20, i + 1);
		uv_sem_wait(&f->done);
	}
}

static void a_small_object_is_got_again_and_again(void **state)
{
	struct fixture *f = *state;

	put(f, "k", 4096, 1);
	for (unsigned int i = 0; i < 8; i++) {
		assert_int_equal(get_other(f, "k", MEM), 4096);
		assert_filled(f->mem, 4096, 1);
	}
}

/* ---- puts beside a store ---- */

struct counting {
	struct pool_mail mail;
	struct fixture *f;
	char *text[STORES];
};

/* Runs on the loop thread, which changes the values counted. */
static void on_count(struct pool_mail *mail)
{
	struct counting *c = pool_container_of(mail, struct counting, mail);
	size_t len;

	for (int i = 0; i < STORES; i++)
		if (pool_metrics_print(c->f->s[i].metrics, &c->text[i], &len))
			abort();
	uv_sem_post(&c->f->done);
}

/* Of all stores. */
static unsigned long counted(struct fixture *f, const char *name)
{
	struct counting c = { .f = f };
	unsigned long sum = 0;
	char *at;

	pool_mailbox_post(&f->box, &c.mail, on_count);
	uv_sem_wait(&f->done);
	for (int i = 0; i < STORES; i++) {
		at = strstr(c.text[i], name);
		while (at && at[strlen(name)] != ' ')
			at = strstr(at + 1, name);
		assert_non_null(at);
		/* skip "# HELP NAME .." and "# TYPE NAME .." */
		at = strstr(strstr(at, "# TYPE"), "\n") + 1;
		sum += strtoul(at + strlen(name), NULL, 10);
		free(c.text[i]);
	}
	return sum;
}

static unsigned int files_in(const char *dir)
{
	struct dirent *e;
	unsigned int n = 0;
	DIR *d = opendir(dir);

	assert_non_null(d);
	while ((e = readdir(d)))
		n += strlen(e->d_name) == 16;
	closedir(d);
	return n;
}

static unsigned int files_of_client(struct fixture *f)
{
	char path[160];

	snprintf(path, sizeof(path), "%s/0/store", f->buffer_dir);
	return files_in(path);
}

static void a_store_takes_over_what_is_put_beside_it(void **state)
{
	struct fixture *f = *state;
	char key[16];

	for (unsigned int i = 0; i < 4; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		put(f, key, 1 << 20, i);
	}
	assert_int_equal(counted(f, "kvpool_node_linked_total"), 4);
	/* No object uses space twice: a file that a store evicts is freed. */
	unit_poll_until(files_of_client(f) == 0);
	assert_int_equal(files_in(f->s[0].dir) + files_in(f->s[1].dir), 4);
	for (unsigned int i = 0; i < 4; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		assert_int_equal(get_other(f, key, MEM), 1 << 20);
		assert_filled(f->mem, 1 << 20, i);
		assert_int_equal(kvpool_get_into(f->ns, key, 2, f->mem, MEM, 0),
				 1 << 20);
		assert_filled(f->mem, 1 << 20, i);
	}
	/* Less is sent. */
	put(f, "small", 4096, 9);
	assert_int_equal(counted(f, "kvpool_node_linked_total"), 4);
	assert_int_equal(kvpool_remove(f->ns, "k1", 2), 0);
	assert_int_equal(kvpool_sync(f->pool), 0);
	unit_poll_until(files_in(f->s[0].dir) + files_in(f->s[1].dir) == 4);
}

static void what_was_taken_over_is_found_at_a_restart(void **state)
{
	struct fixture *f = *state;

	put(f, "k", 1 << 20, 1);
	unit_poll_until(files_of_client(f) == 0);
	call(f, on_stop_stores);
	call(f, on_start_stores);
	unit_poll_until(get_other(f, "k", MEM) == 1 << 20);
	assert_filled(f->mem, 1 << 20, 1);
}

/* The put reads the buffer and computes its checksum before it returns, and
 * nothing reads it afterwards. */
static void a_buffer_is_the_callers_again_after_the_put(void **state)
{
	struct fixture *f = *state;
	char key[16];

	for (unsigned int i = 0; i < 20; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		fill(f->mem, 1 << 20, i);
		assert_int_equal(kvpool_put_from(f->ns, key, strlen(key),
						 f->mem, 1 << 20, 0), 0);
		memset(f->mem, 0, 1 << 20);
	}
	assert_all_there(f, "k", 20, 1 << 20);
}

static void more_than_a_store_holds_is_put_beside_it(void **state)
{
	struct fixture *f = *state;
	unsigned int hits = 0;
	char key[16];

	for (unsigned int i = 0; i < 80; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		put(f, key, 2 << 20, i);
	}
	for (unsigned int i = 0; i < 80; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		if (get_other(f, key, MEM) < 0)
			continue;
		assert_filled(f->mem, 2 << 20, i);
		hits++;
	}
	assert_true(hits >= 20 && hits < 80);
	assert_true(counted(f, "kvpool_node_linked_total") > 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define L(t)                                                       \
	{                                                          \
		#t " (descriptors are lent)", t, setup_local, teardown, NULL \
	}
#define B(t)                                                       \
	{                                                          \
		#t " (beside a store)", t, setup_beside, teardown, NULL \
	}
		cmocka_unit_test(a_line_brings_what_is_asked_for),
		cmocka_unit_test(
			a_pause_before_the_last_bytes_is_all_that_is_waited_for),
		cmocka_unit_test(what_is_refused_leaves_the_line_as_it_was),
		cmocka_unit_test(a_bad_holder_is_backed_off),
		cmocka_unit_test(another_node_at_its_address_is_not_asked),
		cmocka_unit_test(
			a_line_that_its_peer_has_closed_is_dialled_again),
		T(wrong_bytes_are_never_a_hit),
		T(a_holder_that_stands_still_is_waited_for),
		L(a_small_object_is_got_again_and_again),
		B(a_store_takes_over_what_is_put_beside_it),
		B(what_was_taken_over_is_found_at_a_restart),
		T(a_buffer_is_the_callers_again_after_the_put),
		B(a_buffer_is_the_callers_again_after_the_put),
		B(more_than_a_store_holds_is_put_beside_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
