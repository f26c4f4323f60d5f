/*
 * kvpool status in ten lines: how the pool, or a node, is; and what is wrong
 * with it, each with its remedy.
 */
#include <string.h>

#include "tools/cmd.h"

#define BAR 20 /* characters */

static const char *text_of(const json_t *json, const char *key)
{
	const char *text = json_string_value(json_object_get(json, key));

	return text ? text : "?";
}

static long long figure(const json_t *json, const char *key)
{
	return (long long)json_integer_value(json_object_get(json, key));
}

static bool is_true(const json_t *json, const char *key)
{
	return json_is_true(json_object_get(json, key));
}

static double percent(long long part, long long whole)
{
	return whole > 0 ? 100.0 * (double)part / (double)whole : 0;
}

/* "store    [####----------------]  18 %  11.5 MiB of 64.0 MiB" */
static void print_bar(const char *what, long long used, long long size,
		      FILE *out)
{
	int full = (int)(percent(used, size) / 100 * BAR + 0.5);
	char u[32], s[32], bar[BAR + 1];

	full = full > BAR ? BAR : full;
	memset(bar, '#', (size_t)full);
	memset(bar + full, '-', (size_t)(BAR - full));
	bar[BAR] = '\0';
	fprintf(out, "%-9s[%s] %3.0f %%  %s of %s\n", what, bar,
		percent(used, size),
		pool_format_size((uint64_t)used, u, sizeof(u)),
		pool_format_size((uint64_t)size, s, sizeof(s)));
}

/* ---- repair ---- */

/* Prints what no store has space for, if anything, and ends the line. */
static void print_no_room(const json_t *repair, FILE *out)
{
	char bytes[32];

	if (figure(repair, "no_room_keys"))
		fprintf(out,
			"; %lld objects (%s) %shave nowhere to go: no other "
			"store has room",
			figure(repair, "no_room_keys"),
			pool_format_size((uint64_t)figure(repair,
							  "no_room_bytes"),
					 bytes, sizeof(bytes)),
			figure(repair, "endangered") ?
				"" :
				"of nodes being drained ");
	fprintf(out, "\n");
}

static void print_repair(const json_t *repair, FILE *out)
{
	long long eta = figure(repair, "seconds_left");
	char left[32], speed[32];

	if (!figure(repair, "endangered") && !figure(repair, "bytes_left")) {
		fprintf(out, "repair: every key has its copies");
		print_no_room(repair, out);
		return;
	}
	fprintf(out,
		"repair: %lld keys lack copies (%lld have none on a store, "
		"%lld one, %lld two, %lld more); "
		"%lld copies under way, %s left, %s/s",
		figure(repair, "endangered"), figure(repair, "left_0"),
		figure(repair, "left_1"), figure(repair, "left_2"),
		figure(repair, "left_3_or_more"),
		figure(repair, "copies_under_way"),
		pool_format_size((uint64_t)figure(repair, "bytes_left"), left,
				 sizeof(left)),
		pool_format_size((uint64_t)figure(repair, "bytes_per_second"),
				 speed, sizeof(speed)));
	if (eta > 0)
		fprintf(out, ", about %lld s", eta);
	print_no_room(repair, out);
}

/* ---- how links are protected ---- */

#define EXPIRES_SOON_DAYS 14

static void print_links(const json_t *links, FILE *out)
{
	const char *how = text_of(links, "protected");

	if (strcmp(how, "tls") == 0)
		fprintf(out, "links    TLS, cluster %s; certificate of a %s, "
			     "for %lld more days\n",
			text_of(links, "cluster"), text_of(links, "role"),
			figure(links, "expires_days"));
	else if (strcmp(how, "users") == 0)
		fprintf(out, "links    local users only, on loopback\n");
	else if (strcmp(how, "insecure") == 0)
		fprintf(out, "links    not protected (--insecure)\n");
}

/* Prints what TLS does not protect on a node with TLS, and who encrypts. */
static void print_bulk(const json_t *node, FILE *out)
{
	bool rdma = is_true(node, "rdma"),
	     auth = strcmp(text_of(node, "bulk"), "auth") == 0;

	if (rdma || auth)
		fprintf(out, "bulk     bytes of objects are not encrypted: "
			     "%s%s%s\n",
			rdma ? "RDMA" : "", rdma && auth ? ", " : "",
			auth ? "--bulk auth" : "");
	if (!auth && is_true(node, "ktls"))
		fprintf(out, "bulk     encrypted by the kernel (kTLS)\n");
}

static unsigned int link_problems(const json_t *links, FILE *out)
{
	if (strcmp(text_of(links, "protected"), "tls") != 0 ||
	    figure(links, "expires_days") > EXPIRES_SOON_DAYS)
		return 0;
	fprintf(out, "problem: the certificate expires in %lld days: kvpool "
		     "certs renew makes a new one; no restart is needed\n",
		figure(links, "expires_days"));
	return 1;
}

/* ---- a master ---- */

static unsigned int master_problems(const json_t *s, FILE *out)
{
	long long away = figure(s, "nodes") - figure(s, "nodes_alive");
	const json_t *repair = json_object_get(s, "repair");
	unsigned int n = 0;

	if (!is_true(s, "ready") && ++n)
		fprintf(out, "problem: the master waits for nodes that were "
			     "in the pool before its start: kvpool nodes "
			     "lists them\n");
	if (away > 0 && ++n)
		fprintf(out, "problem: %lld of %lld nodes away: start them, "
			     "or await the repair (kvpool nodes)\n",
			away, figure(s, "nodes"));
	if (figure(repair, "no_room_keys") && ++n)
		fprintf(out, "problem: copies have no room: add a store, or "
			     "lower user.kvpool.replicas\n");
	return n;
}

/* The hit rate, and the best possible one (of a pool that evicts nothing). A
 * window that the daemon does not report, or without look-ups, is left out. The
 * line fits 80 columns. */
static void print_asked(const json_t *asked, FILE *out)
{
	static const char *const windows[] = { "15m", "1h", "24h" };
	const char *sep = "hits     ";

	for (size_t i = 0; i < sizeof(windows) / sizeof(windows[0]); i++) {
		const json_t *w = json_object_get(asked, windows[i]);
		long long lookups = figure(w, "lookups");

		if (lookups <= 0 || !json_is_integer(json_object_get(
					    w, "best_hits")))
			continue;
		fprintf(out, "%s%.0f of %s%.0f %% (%s)", sep,
			percent(figure(w, "hits"), lookups),
			sep[0] == ',' ? "" : "at best ",
			percent(figure(w, "best_hits"), lookups), windows[i]);
		sep = ", ";
	}
	if (sep[0] == ',')
		fprintf(out, "\n");
}

static void print_master(const json_t *s, FILE *out)
{
	char bytes[32];

	print_bar("capacity", figure(s, "used"), figure(s, "capacity"), out);
	fprintf(out, "nodes    %lld, %lld of them alive\n", figure(s, "nodes"),
		figure(s, "nodes_alive"));
	fprintf(out, "objects  %lld (%s), directories: %lld\n",
		figure(s, "keys"),
		pool_format_size((uint64_t)figure(s, "bytes"), bytes,
				 sizeof(bytes)),
		figure(s, "directories"));
	print_asked(json_object_get(s, "asked"), out);
	print_repair(json_object_get(s, "repair"), out);
}

/* ---- a node ---- */

static bool is_cut_off(const json_t *s)
{
	return !is_true(json_object_get(s, "master"), "connected");
}

static unsigned int node_problems(const json_t *s, FILE *out)
{
	const char *since = json_string_value(
		json_object_get(s, "degraded_since"));
	const json_t *store = json_object_get(s, "store");
	long long size = figure(store, "size");
	unsigned int n = 0;

	if (since && ++n)
		fprintf(out, "DEGRADED since %s: reads go on; %lld files wait "
			     "to be published\n",
			since, figure(s, "pending"));
	if (is_cut_off(s) && ++n)
		fprintf(out, "problem: no master at %s: start it, or see "
			     "--master\n",
			text_of(json_object_get(s, "master"), "address"));
	if (size && (figure(store, "free") + figure(store, "evictable")) * 20 <
			    size && ++n)
		fprintf(out, "problem: less than 5 %% of the store is free or "
			     "evictable: add stores or unpin\n");
	if (json_is_string(json_object_get(s, "mount")) &&
	    strcmp(text_of(s, "data_mode"), "passthrough") != 0 && ++n)
		fprintf(out, "problem: data passes through the daemon; "
			     "passthrough needs root and Linux 6.9\n");
	return n;
}

static void print_node(const json_t *s, FILE *out)
{
	const json_t *master = json_object_get(s, "master");
	const json_t *store = json_object_get(s, "store");
	long long hits = figure(s, "hits");
	long long lookups = hits + figure(s, "misses");
	char bytes[32], cached[32];

	fprintf(out, "master   %s, %s\n", text_of(master, "address"),
		is_cut_off(s) ? "NOT connected" : "connected");
	if (figure(store, "size") > 0)
		print_bar("store", figure(store, "used"),
			  figure(store, "size"), out);
	fprintf(out, "objects  %lld (%s), and %lld cached (%s); %lld names in "
		     "the pool\n",
		figure(s, "objects"),
		pool_format_size((uint64_t)figure(s, "bytes"), bytes,
				 sizeof(bytes)),
		figure(s, "cached"),
		pool_format_size((uint64_t)figure(s, "cached_bytes"), cached,
				 sizeof(cached)),
		figure(s, "names"));
	fprintf(out, "look-ups %lld, %.0f %% hits; %lld evictions\n", lookups,
		percent(hits, lookups), figure(s, "evictions"));
	print_asked(json_object_get(s, "asked"), out);
}

void cmd_print_summary(const json_t *s, const char *address, FILE *out)
{
	const char *name = json_string_value(json_object_get(s, "name"));
	bool is_master = json_is_object(json_object_get(s, "repair"));
	const json_t *links = json_object_get(s, "links");
	unsigned int problems;

	fprintf(out, "%s%s%s at %s", text_of(s, "role"), name ? " " : "",
		name ? name : "", address);
	if (json_is_string(json_object_get(s, "mount")))
		fprintf(out, ", mounted at %s (%s)", text_of(s, "mount"),
			text_of(s, "data_mode"));
	fprintf(out, "\n");
	if (is_master)
		print_master(s, out);
	else if (json_is_object(json_object_get(s, "master")))
		print_node(s, out);
	print_links(links, out);
	if (strcmp(text_of(links, "protected"), "tls") == 0)
		print_bulk(s, out);
	problems = is_master ? master_problems(s, out) : node_problems(s, out);
	problems += link_problems(links, out);
	if (!problems)
		fprintf(out, "no problems\n");
}
