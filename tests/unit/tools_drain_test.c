/* kvpool drain, with a fake master that answers its requests for progress. */
#include "tests/lib/unit.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/cmd.h"

/* The state that each request gets in turn; the last one is repeated. A "!"
 * before it: not recorded. */
static struct {
	int fd;
	pthread_t thread;
	const char *const *states;
	unsigned int asked; /* read when the thread has ended */
} played;

/* A request without a body. False: the connection ended. */
static bool read_request(int fd)
{
	char buf[4096];
	size_t len = 0;
	ssize_t n;

	while (len < sizeof(buf) - 1) {
		n = read(fd, buf + len, sizeof(buf) - 1 - len);
		if (n <= 0)
			return false;
		len += (size_t)n;
		buf[len] = '\0';
		if (strstr(buf, "\r\n\r\n"))
			return true;
	}
	return false;
}

static void answer(int fd, const char *state)
{
	char body[128], text[512];
	int n;

	snprintf(body, sizeof(body),
		 "{\"node\":\"n\",\"state\":\"%s\",\"recorded\":%s}",
		 state + (*state == '!'), *state == '!' ? "false" : "true");
	n = snprintf(text, sizeof(text),
		     "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
		     "Content-Length: %zu\r\nConnection: close\r\n\r\n%s",
		     strlen(body), body);
	(void)!write(fd, text, (size_t)n);
}

static void *serve(void *arg)
{
	int fd;

	(void)arg;
	while ((fd = accept(played.fd, NULL, NULL)) >= 0) {
		if (read_request(fd)) {
			answer(fd, *played.states);
			played.asked++;
			if (played.states[1])
				played.states++;
		}
		close(fd);
	}
	return NULL;
}

/* Returns the exit status. states: the answers to the first request and each
 * later one, ending with NULL. */
static int drain(const char *const *states)
{
	struct sockaddr_in sa = { .sin_family = AF_INET };
	socklen_t len = sizeof(sa);
	char admin[32];
	char *argv[] = { "drain", "n", "--admin", admin, NULL };
	int rc;

	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	played.states = states;
	played.asked = 0;
	played.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(0, bind(played.fd, (void *)&sa, sizeof(sa)));
	assert_int_equal(0, listen(played.fd, 8));
	assert_int_equal(0, getsockname(played.fd, (void *)&sa, &len));
	snprintf(admin, sizeof(admin), "127.0.0.1:%u", ntohs(sa.sin_port));
	assert_int_equal(0, pthread_create(&played.thread, NULL, serve, NULL));
	rc = cmd_drain(4, argv);
	shutdown(played.fd, SHUT_RDWR);
	pthread_join(played.thread, NULL);
	close(played.fd);
	return rc;
}

static void what_finds_room_now_and_then_is_waited_for(void **state)
{
	static const char *const states[] = {
		"draining", "stuck", "stuck", "stuck", "draining", "stuck",
		"stuck", "stuck", "drained", NULL,
	};

	(void)state;
	assert_int_equal(0, drain(states));
	assert_int_equal(9, played.asked);
}

static void what_finds_no_room_for_long_is_given_up(void **state)
{
	static const char *const states[] = { "draining", "stuck", NULL };

	(void)state;
	assert_int_equal(1, drain(states));
	assert_true(played.asked > 2);
}

static void a_drain_of_a_node_that_is_not_connected_ends(void **state)
{
	static const char *const states[] = { "draining", "away", NULL };

	(void)state;
	assert_int_equal(1, drain(states));
	assert_int_equal(2, played.asked);
}

static void
one_that_another_master_would_not_know_of_is_waited_for(void **state)
{
	static const char *const states[] = { "!draining", "!drained",
					      "drained", "drained", NULL };

	(void)state;
	assert_int_equal(0, drain(states));
	assert_int_equal(4, played.asked);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			one_that_another_master_would_not_know_of_is_waited_for),
		cmocka_unit_test(what_finds_room_now_and_then_is_waited_for),
		cmocka_unit_test(what_finds_no_room_for_long_is_given_up),
		cmocka_unit_test(a_drain_of_a_node_that_is_not_connected_ends),
	};

	alarm(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
