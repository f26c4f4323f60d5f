#include "pool/base/mountinfo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_octal(char c)
{
	return c >= '0' && c <= '7';
}

/* \040 and the like, in place. */
static void unescape(char *s)
{
	char *to = s;

	for (; *s; s++, to++) {
		*to = *s;
		if (s[0] == '\\' && is_octal(s[1]) && is_octal(s[2]) &&
		    is_octal(s[3])) {
			*to = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 |
				     (s[3] - '0'));
			s += 3;
		}
	}
	*to = '\0';
}

bool pool_mountinfo_parse(char *line, struct pool_mountinfo *ret)
{
	char *rest = strstr(line, " - "), *field[5], *save = NULL;

	if (!rest)
		return false;
	*rest = '\0';
	for (int i = 0; i < 5; i++) {
		field[i] = strtok_r(i ? NULL : line, " ", &save);
		if (!field[i])
			return false;
	}
	ret->id = strtoull(field[0], NULL, 10);
	ret->device = field[2];
	unescape(field[3]);
	ret->root = field[3];
	unescape(field[4]);
	ret->point = field[4];
	ret->type = strtok_r(rest + 3, " \n", &save);
	ret->source = strtok_r(NULL, " \n", &save);
	ret->options = strtok_r(NULL, " \n", &save);
	return ret->type && ret->options;
}

bool pool_mountinfo_is(uint64_t mnt_id,
		       bool (*is)(const struct pool_mountinfo *m))
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	struct pool_mountinfo m;
	char *line = NULL;
	size_t cap = 0;
	bool found = false;

	while (f && !found && getline(&line, &cap, f) > 0)
		found = pool_mountinfo_parse(line, &m) && m.id == mnt_id &&
			is(&m);
	free(line);
	if (f)
		fclose(f);
	return found;
}
