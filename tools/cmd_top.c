/*
 * kvpool top: polls a daemon, and shows its nodes, or the directories of the
 * pool's root, on a terminal as top(1) shows processes, or
 * prints frames (--batch). tools/top.c makes them.
 *
 * While the daemon does not answer, the last frame stays, with the error below
 * it. However the program ends, the terminal is as it was before.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "pool/base/clock.h"
#include "tools/cmd.h"
#include "tools/top.h"

/* The other screen of a terminal; back to the first one. */
#define ENTER "\033[?1049h"
#define LEAVE "\033[?1049l"
/* Before a frame; after it: remember the place, for errors. Each line is
 * cleared as it is overwritten, so the screen does not flicker. */
#define HOME "\033[H"
#define CLEAR_LINE "\033[K"
#define CLEAR_BELOW "\033[J"
#define KEEP_PLACE "\0337"
#define TO_PLACE "\0338"

static struct {
	struct pool_hostport admin; /* host "": the defaults */
	bool batch, directories;
	uint64_t count; /* of frames; 0: no limit */
	uint64_t delay_ms;
	unsigned int order;
} conf;

static struct termios before; /* once raw */
static sigset_t signals;      /* blocked while it waits */

/* ---- the terminal ---- */

static void restore(void)
{
	static const char leave[] = LEAVE;
	ssize_t ignored = write(STDOUT_FILENO, leave, sizeof(leave) - 1);

	(void)ignored;
	(void)tcsetattr(STDIN_FILENO, TCSANOW, &before);
}

static void on_end(int sig)
{
	restore();
	_exit(128 + sig);
}

static void on_resize(int sig)
{
	(void)sig; /* ppoll() returns EINTR */
}

static int open_terminal(void)
{
	static const int ends[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };
	struct sigaction end = { .sa_handler = on_end };
	struct sigaction resize = { .sa_handler = on_resize };
	struct termios raw;
	sigset_t winch;

	if (!isatty(STDOUT_FILENO) || tcgetattr(STDIN_FILENO, &before)) {
		fprintf(stderr, "kvpool: top: standard input or output is no "
				"terminal; accepted: a terminal, or -b\n");
		return -ENOTTY;
	}
	raw = before;
	raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	raw.c_cc[VMIN] = 1;
	raw.c_cc[VTIME] = 0;
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		(void)sigaction(ends[i], &end, NULL);
	/* One that comes while a frame is drawn waits for ppoll(), and has it
	 * drawn again. */
	sigemptyset(&winch);
	sigaddset(&winch, SIGWINCH);
	(void)sigprocmask(SIG_BLOCK, &winch, &signals);
	sigdelset(&signals, SIGWINCH);
	(void)sigaction(SIGWINCH, &resize, NULL);
	(void)tcsetattr(STDIN_FILENO, TCSANOW, &raw);
	fputs(ENTER, stdout);
	return 0;
}

/* ---- frames ---- */

static void print_frame(struct top *t, unsigned int width, unsigned int height,
			FILE *out)
{
	char clock[16], address[POOL_HOSTPORT_TEXT];
	time_t now = time(NULL);
	struct tm tm;

	strftime(clock, sizeof(clock), "%H:%M:%S", localtime_r(&now, &tm));
	pool_format_hostport(&conf.admin, address, sizeof(address));
	top_print(t, clock, address, width, height, out);
}

/* Prints a frame over the one before, cut to the terminal's width. */
static void draw(struct top *t)
{
	struct winsize w = { .ws_row = 24, .ws_col = 80 };
	char *text = NULL, *line, *end;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return;
	(void)ioctl(STDOUT_FILENO, TIOCGWINSZ, &w);
	if (w.ws_row < 8)
		w.ws_row = 8;
	/* One line below is for the keys, one for an error. */
	print_frame(t, w.ws_col, w.ws_row - 2u, f);
	if (fclose(f)) {
		free(text);
		return;
	}
	fputs(HOME, stdout);
	for (line = text; (end = strchr(line, '\n')); line = end + 1)
		printf("%.*s" CLEAR_LINE "\n",
		       end - line < w.ws_col ? (int)(end - line) : w.ws_col,
		       line);
	printf("%.*s" CLEAR_BELOW "\r" KEEP_PLACE, (int)w.ws_col - 1,
	       t->view == TOP_DIRECTORIES ?
		       "q ends; d: nodes; order: n, s, o, h, a; R reverses it" :
		       "q ends; d: directories; order: n, u, k, s, o, t "
		       "(sent); R reverses it");
	fflush(stdout);
	free(text);
}

/* ---- asking ---- */

static int take_directories(struct top *t)
{
	json_t *page;
	int err = cmd_get(&conf.admin, "/api/directories", &page);

	if (err)
		return err;
	err = top_take_directories(t, json_object_get(page, "directories"));
	if (err)
		fprintf(stderr, "kvpool: top: %s\n", strerror(-err));
	json_decref(page);
	return err;
}

/* 0 or -errno, printed. */
static int take(struct top *t)
{
	json_t *status, *nodes;
	int err = cmd_get(&conf.admin, "/api/status", &status);

	if (err)
		return err;
	err = cmd_get(&conf.admin, "/api/nodes", &nodes);
	if (!err) {
		err = top_take(t, status, json_object_get(nodes, "nodes"),
			       pool_now_ms());
		if (err)
			fprintf(stderr, "kvpool: top: %s\n", strerror(-err));
		json_decref(nodes);
	}
	json_decref(status);
	return !err && t->view == TOP_DIRECTORIES ? take_directories(t) : err;
}

static int batch(struct top *t)
{
	for (uint64_t i = 0; !conf.count || i < conf.count; i++) {
		if (i) {
			struct timespec delay = {
				.tv_sec = (time_t)(conf.delay_ms / 1000),
				.tv_nsec = (long)(conf.delay_ms % 1000) *
					   1000000
			};

			nanosleep(&delay, NULL);
			printf("\n");
		}
		if (take(t))
			return 1;
		print_frame(t, TOP_WIDTH_MIN, 0, stdout);
		if (fflush(stdout))
			return 1;
	}
	return 0;
}

/* Handles keys until the delay ends. False: the program ends. */
static bool wait_keys(struct top *t)
{
	uint64_t end = pool_now_ms() + conf.delay_ms, now;
	struct pollfd fd = { .fd = STDIN_FILENO, .events = POLLIN };
	struct timespec left;
	char key;
	int n;

	while ((now = pool_now_ms()) < end) {
		left.tv_sec = (time_t)((end - now) / 1000);
		left.tv_nsec = (long)((end - now) % 1000 * 1000000);
		n = ppoll(&fd, 1, &left, &signals);
		if (n < 0 && errno != EINTR)
			return false;
		if (n > 0 && (read(STDIN_FILENO, &key, 1) != 1 ||
			      !top_key(t, key)))
			return false;
		if (n)
			draw(t); /* for a key, or another size */
		if (n > 0 && (key == ' ' || key == 'd'))
			return true;
	}
	return true;
}

static int interactive(struct top *t)
{
	if (take(t) || open_terminal())
		return 1;
	draw(t);
	for (uint64_t i = 1; !conf.count || i < conf.count; i++) {
		if (!wait_keys(t))
			break;
		printf(TO_PLACE "\n" CLEAR_BELOW);
		fflush(stdout);
		if (!take(t))
			draw(t);
	}
	fflush(stdout);
	restore();
	return 0;
}

/* The short options of top(1). */
static void expand_short(int argc, char **argv)
{
	static const char *const pairs[][2] = { { "-b", "--batch" },
						{ "-n", "--count" },
						{ "-d", "--delay" },
						{ "-D", "--directories" },
						{ "-o", "--order" } };

	for (int i = 1; i < argc; i++)
		for (size_t k = 0; k < sizeof(pairs) / sizeof(pairs[0]); k++)
			if (strcmp(argv[i], pairs[k][0]) == 0)
				argv[i] = (char *)(uintptr_t)pairs[k][1];
}

int cmd_top(int argc, char **argv)
{
	struct daemon_option opts[] = {
		{ .name = "admin", .type = OPT_HOSTPORT, .value = &conf.admin,
		  .arg = "HOST:PORT", .help = CMD_ADMIN_HELP,
		  .default_port = 7073 },
		CMD_TLS_OPTION,
		{ .name = "batch", .type = OPT_FLAG, .value = &conf.batch,
		  .help = "Print frames, for programs and files. Also -b.",
		  .no_env = true },
		{ .name = "directories", .type = OPT_FLAG,
		  .value = &conf.directories,
		  .help = "Begin with the directories of the root. Also -D.",
		  .no_env = true },
		{ .name = "count", .type = OPT_COUNT, .value = &conf.count,
		  .arg = "N", .help = "End after N frames. Also -n.",
		  .no_env = true },
		{ .name = "delay", .type = OPT_DURATION,
		  .value = &conf.delay_ms, .arg = "DURATION",
		  .help = "Between frames. Also -d.", .min = 100,
		  .max = 3600000, .no_env = true },
		{ .name = "order", .type = OPT_CHOICE, .value = &conf.order,
		  .arg = TOP_ORDERS, .help = "Of the lines. Also -o.",
		  .no_env = true },
		{ .name = NULL },
	};
	static const char usage[] =
		"usage: kvpool top [-b] [-D] [-n N] [-d DURATION] [-o ORDER]\n"
		"                  [--admin HOST:PORT] [--tls-dir DIR]\n\n"
		"Shows the nodes of the pool, or (-D) the directories of its "
		"root, refreshed.\nKeys: q ends; d: the other table; n, u, k, "
		"s, o, t, h, a: the order;\nR reverses it; space refreshes.";
	struct top t = { .order = { [TOP_DIRECTORIES] = TOP_BY_SIZE } };
	char **ops;
	int nops, rc;

	conf.delay_ms = 2000;
	expand_short(argc, argv);
	rc = daemon_options_parse(opts, argc, argv, usage, &nops, &ops, stdout,
				  stderr);
	if (rc)
		return rc > 0 ? 0 : 2;
	if (nops) {
		fprintf(stderr, "kvpool: top: \"%s\" given; %s\n", ops[0],
			usage);
		return 2;
	}
	t.view = conf.directories ? TOP_DIRECTORIES : TOP_NODES;
	if (!top_has_order(t.view, conf.order)) {
		fprintf(stderr,
			"kvpool: top: --order does not fit the table; "
			"accepted: %s\n",
			conf.directories ? TOP_ORDERS_OF_DIRECTORIES :
					   TOP_ORDERS_OF_NODES);
		return 2;
	}
	if (daemon_option_find(opts, "order")->given)
		t.order[t.view] = conf.order;
	rc = conf.batch ? batch(&t) : interactive(&t);
	top_fini(&t);
	return rc;
}
