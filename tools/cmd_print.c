#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/cmd.h"

#define LEAF_MAX 512
#define NAME_MAX_LEN 256
#define COLUMNS_MAX 32

static bool ends_with(const char *name, const char *end)
{
	size_t n = strlen(name), m = strlen(end);

	return n >= m && strcmp(name + n - m, end) == 0;
}

/* A figure with the unit that its name implies; false: it implies none. */
static bool format_unit(const char *name, json_int_t v, char *buf, size_t cap)
{
	time_t s = (time_t)(v / 1000000000);
	char size[32];
	struct tm tm;

	if (v < 0)
		return false;
	if (ends_with(name, "mtime_ns") && gmtime_r(&s, &tm))
		strftime(buf, cap, "%Y-%m-%d %H:%M:%S UTC", &tm);
	else if (ends_with(name, "bytes_per_second"))
		snprintf(buf, cap, "%s/s",
			 pool_format_size((uint64_t)v, size, sizeof(size)));
	else if (ends_with(name, "_ms"))
		snprintf(buf, cap, "%.3g s", (double)v / 1000);
	else
		return false;
	return true;
}

/* Does the member of this name hold bytes? Decided by its last word. */
static bool is_bytes(const char *name)
{
	static const char *const words[] = {
		"bytes", "size",     "used",  "free",
		"total", "capacity", "ready", "headroom",
		"evictable",
	};
	const char *last = strrchr(name, '_');

	last = last ? last + 1 : name;
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strcmp(last, words[i]) == 0)
			return true;
	return false;
}

static void format_array(const char *name, const json_t *array, char *buf,
			 size_t cap)
{
	size_t i, n = 0;
	json_t *item;

	snprintf(buf, cap, "-");
	json_array_foreach(array, i, item) {
		char leaf[LEAF_MAX];

		cmd_format_leaf(name, item, leaf, sizeof(leaf));
		if (n + strlen(leaf) + 2 > cap)
			return;
		n += (size_t)snprintf(buf + n, cap - n, "%s%s", i ? "," : "",
				      leaf);
	}
}

/* The length of the character at p (valid UTF-8) if a terminal would act on it
 * rather than show it, else 0: C0 and C1 controls, ends of lines, and marks
 * that change the direction of the text. */
static size_t acts(const unsigned char *p)
{
	if (iscntrl(p[0]))
		return 1;
	if ((p[0] == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f) ||
	    (p[0] == 0xd8 && p[1] == 0x9c))
		return 2;
	if (p[0] != 0xe2)
		return 0;
	if (p[1] == 0x80)
		return (p[2] | 1) == 0x8f || (p[2] >= 0xa8 && p[2] <= 0xae) ?
			       3 : 0;
	return p[1] == 0x81 && p[2] >= 0xa6 && p[2] <= 0xa9 ? 3 : 0;
}

/* Any user can name objects. Characters that act become question marks. */
static void make_harmless(char *text)
{
	const char *from = text;
	size_t n;

	while (*from) {
		n = acts((const unsigned char *)from);
		*text++ = n ? '?' : *from;
		from += n ? n : 1;
	}
	*text = '\0';
}

void cmd_format_leaf(const char *name, const json_t *leaf, char *buf,
		     size_t cap)
{
	char size[32];

	switch (json_typeof(leaf)) {
	case JSON_STRING:
		snprintf(buf, cap, "%s", json_string_value(leaf));
		make_harmless(buf);
		return;
	case JSON_INTEGER:
		if (format_unit(name, json_integer_value(leaf), buf, cap))
			return;
		if (is_bytes(name) && json_integer_value(leaf) >= 0) {
			pool_format_size((uint64_t)json_integer_value(leaf),
					 size, sizeof(size));
			snprintf(buf, cap, "%s", size);
			return;
		}
		snprintf(buf, cap, "%lld", (long long)json_integer_value(leaf));
		return;
	case JSON_REAL:
		snprintf(buf, cap, "%.3g", json_real_value(leaf));
		return;
	case JSON_TRUE:
		snprintf(buf, cap, "yes");
		return;
	case JSON_FALSE:
		snprintf(buf, cap, "no");
		return;
	case JSON_NULL:
		snprintf(buf, cap, "-");
		return;
	case JSON_ARRAY:
		format_array(name, leaf, buf, cap);
		return;
	case JSON_OBJECT:
		snprintf(buf, cap, "{...}");
		return;
	}
}

/* Does an array contain objects or arrays, so that it needs several lines? */
static bool is_deep(const json_t *array)
{
	const json_t *first = json_array_get(array, 0);

	return json_is_object(first) || json_is_array(first);
}

/* The length of the label, without a unit that the value shows. */
static int label_len(const char *path)
{
	bool unit = ends_with(path, "mtime_ns") || ends_with(path, "_ms");

	return (int)strlen(path) - (unit ? 3 : 0);
}

/* Walks json's leaves: prints them (width NULL), or only enlarges *width. */
static void flat(const char *path, const char *name, const json_t *json,
		 FILE *out, int width, int *ret_width)
{
	char child[NAME_MAX_LEN], leaf[LEAF_MAX];
	const char *key;
	json_t *value;
	size_t i;

	if (json_is_object(json)) {
		json_object_foreach((json_t *)(uintptr_t)json, key, value) {
			snprintf(child, sizeof(child), "%s%s%s", path,
				 path[0] ? "." : "", key);
			flat(child, key, value, out, width, ret_width);
		}
		return;
	}
	if (json_is_array(json) && is_deep(json)) {
		json_array_foreach(json, i, value) {
			snprintf(child, sizeof(child), "%s.%zu", path, i);
			flat(child, name, value, out, width, ret_width);
		}
		return;
	}
	if (ret_width) {
		int n = label_len(path);

		*ret_width = n > *ret_width ? n : *ret_width;
		return;
	}
	cmd_format_leaf(name, json, leaf, sizeof(leaf));
	fprintf(out, "%-*.*s  %s\n", width, label_len(path), path, leaf);
}

void cmd_print_flat(const json_t *json, FILE *out)
{
	int width = 0;

	flat("", "", json, out, 0, &width);
	flat("", "", json, out, width, NULL);
}

/* ---- tables ---- */

struct column {
	const char *name; /* borrows from the rows */
	int width;
	bool number; /* right-aligned */
};

static size_t find_columns(const json_t *rows, struct column *cols)
{
	size_t n = 0, row, c;
	const char *key;
	json_t *obj, *value;
	char leaf[LEAF_MAX];

	json_array_foreach(rows, row, obj) {
		json_object_foreach(obj, key, value) {
			for (c = 0; c < n && strcmp(cols[c].name, key); c++)
				;
			if (c == COLUMNS_MAX)
				continue;
			if (c == n)
				cols[n++] = (struct column){
					key, (int)strlen(key),
					json_is_number(value)
				};
			cmd_format_leaf(key, value, leaf, sizeof(leaf));
			if ((int)strlen(leaf) > cols[c].width)
				cols[c].width = (int)strlen(leaf);
		}
	}
	return n;
}

static void print_cell(const struct column *col, const char *text, bool last,
		       FILE *out)
{
	if (col->number)
		fprintf(out, "%*s", col->width, text);
	else
		fprintf(out, "%-*s", last ? 0 : col->width, text);
	fputs(last ? "\n" : "  ", out);
}

void cmd_print_table(const json_t *rows, FILE *out)
{
	struct column cols[COLUMNS_MAX];
	size_t n = find_columns(rows, cols), row;
	char leaf[LEAF_MAX];
	json_t *obj, *value;

	for (size_t c = 0; c < n; c++) {
		snprintf(leaf, sizeof(leaf), "%s", cols[c].name);
		for (char *p = leaf; *p; p++)
			*p = (char)toupper((unsigned char)*p);
		print_cell(&cols[c], leaf, c + 1 == n, out);
	}
	json_array_foreach(rows, row, obj) {
		for (size_t c = 0; c < n; c++) {
			value = json_object_get(obj, cols[c].name);
			snprintf(leaf, sizeof(leaf), "-");
			if (value)
				cmd_format_leaf(cols[c].name, value, leaf,
						sizeof(leaf));
			print_cell(&cols[c], leaf, c + 1 == n, out);
		}
	}
}

void cmd_print_json(const json_t *json, FILE *out)
{
	json_dumpf(json, out, JSON_INDENT(2));
	fputc('\n', out);
}

char *cmd_url_escape(const char *text)
{
	static const char hex[] = "0123456789ABCDEF";
	char *url = malloc(3 * strlen(text) + 1), *p = url;

	if (!url)
		return NULL;
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (isalnum(c) || strchr("-._~/", c)) {
			*p++ = *text;
			continue;
		}
		*p++ = '%';
		*p++ = hex[c >> 4];
		*p++ = hex[c & 15];
	}
	*p = '\0';
	return url;
}
