/* The messages to systemd: one per call, to a path or an abstract name. */
#include "tests/lib/unit.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/notify.h"

/* A socket at an address in the form of NOTIFY_SOCKET. */
static int listen_at(const char *name)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) +
				    strlen(name));
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);

	memcpy(un.sun_path, name, strlen(name));
	if (name[0] == '@')
		un.sun_path[0] = '\0';
	assert_return_code(fd, 0);
	assert_return_code(bind(fd, (struct sockaddr *)&un, len), 0);
	assert_return_code(setenv("NOTIFY_SOCKET", name, 1), 0);
	return fd;
}

static void assert_received(int fd, const char *text)
{
	char buf[64];
	ssize_t n = recv(fd, buf, sizeof(buf) - 1, 0);

	assert_true(n >= 0);
	buf[n] = '\0';
	assert_string_equal(buf, text);
}

static void hears_at(const char *name)
{
	int fd = listen_at(name);

	daemon_notify_ready();
	daemon_notify_main(4711);
	assert_received(fd, "READY=1");
	assert_received(fd, "MAINPID=4711");
	close(fd);
}

static void at_a_path(void **state)
{
	char path[64];

	(void)state;
	snprintf(path, sizeof(path), "/tmp/daemon_notify_test.%d", getpid());
	hears_at(path);
	unlink(path);
}

static void at_an_abstract_name(void **state)
{
	char name[64];

	(void)state;
	snprintf(name, sizeof(name), "@daemon_notify_test.%d", getpid());
	hears_at(name);
}

/* Not started by systemd, or no process receives: not an error. */
static void without_a_receiver_it_is_no_error(void **state)
{
	char longer[200];

	(void)state;
	unsetenv("NOTIFY_SOCKET");
	daemon_notify_ready();
	setenv("NOTIFY_SOCKET", "", 1);
	daemon_notify_ready();
	setenv("NOTIFY_SOCKET", "/nonexistent/socket", 1);
	daemon_notify_ready();
	memset(longer, 'a', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	setenv("NOTIFY_SOCKET", longer, 1);
	daemon_notify_main(1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(at_a_path),
		cmocka_unit_test(at_an_abstract_name),
		cmocka_unit_test(without_a_receiver_it_is_no_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
