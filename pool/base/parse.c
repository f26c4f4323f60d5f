#include "pool/base/parse.h"

#include <arpa/inet.h>
#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- numbers ---- */

#define FRACTION_MAX 15 /* digits, so that fraction * scale fits 128 bits */

/* A decimal number, digits[.digits], as whole + part / part_scale. */
struct decimal {
	uint64_t whole;
	uint64_t part, part_scale;
};

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static int take_digits(const char **text, uint64_t *ret_value)
{
	const char *p = *text;
	uint64_t v = 0;

	if (!is_digit(*p))
		return -EINVAL;
	for (; is_digit(*p); p++)
		if (__builtin_mul_overflow(v, 10u, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(*p - '0'), &v))
			return -ERANGE;
	*text = p;
	*ret_value = v;
	return 0;
}

static int take_decimal(const char **text, struct decimal *d)
{
	const char *p;
	int err = take_digits(text, &d->whole);

	d->part = 0;
	d->part_scale = 1;
	if (err || **text != '.')
		return err;
	p = ++*text;
	err = take_digits(text, &d->part);
	if (err)
		return err;
	if (*text - p > FRACTION_MAX)
		return -ERANGE;
	for (; p < *text; p++)
		d->part_scale *= 10;
	return 0;
}

static int scale(const struct decimal *d, uint64_t unit, uint64_t *ret_value)
{
	unsigned __int128 v = (unsigned __int128)d->whole * unit +
			      (unsigned __int128)d->part * unit / d->part_scale;

	if (v > UINT64_MAX)
		return -ERANGE;
	*ret_value = (uint64_t)v;
	return 0;
}

static bool is_size_unit(const char *text, char letter)
{
	return toupper((unsigned char)*text) == letter &&
	       (!text[1] || !strcasecmp(text + 1, "b") ||
		!strcasecmp(text + 1, "ib"));
}

int pool_parse_size(const char *text, uint64_t *ret_bytes)
{
	static const char letters[] = "KMGTP";
	struct decimal d;
	int err = take_decimal(&text, &d);

	if (err)
		return err;
	if (!*text)
		return d.part_scale > 1 ? -EINVAL : scale(&d, 1, ret_bytes);
	for (unsigned int i = 0; letters[i]; i++)
		if (is_size_unit(text, letters[i]))
			return scale(&d, (uint64_t)1024 << (10 * i),
				     ret_bytes);
	return -EINVAL;
}

int pool_parse_duration_ms(const char *text, uint64_t *ret_ms)
{
	static const struct {
		const char *name;
		uint64_t ms;
	} units[] = {
		{ "ms", 1 },	    { "s", 1000 },     { "", 1000 },
		{ "m", 60000 }, { "h", 3600000 }, { "d", 86400000 },
	};
	struct decimal d;
	int err = take_decimal(&text, &d);

	if (err)
		return err;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (!strcmp(text, units[i].name))
			return scale(&d, units[i].ms, ret_ms);
	return -EINVAL;
}

int pool_parse_u64(const char *text, uint64_t min, uint64_t max,
		   uint64_t *ret_value)
{
	uint64_t v;
	int err = take_digits(&text, &v);

	/* "99999999999999999999x" is -EINVAL, not -ERANGE. */
	while (err == -ERANGE && is_digit(*text))
		text++;
	if (*text)
		return -EINVAL;
	if (err)
		return err;
	if (v < min || v > max)
		return -ERANGE;
	*ret_value = v;
	return 0;
}

int pool_parse_bool(const char *text, bool *ret_value)
{
	static const char *const yes[] = { "1", "true", "yes", "on" };
	static const char *const no[] = { "0", "false", "no", "off" };

	for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++) {
		bool is_yes = !strcasecmp(text, yes[i]);

		if (is_yes || !strcasecmp(text, no[i])) {
			*ret_value = is_yes;
			return 0;
		}
	}
	return -EINVAL;
}

/* ---- addresses ---- */

static bool is_host_name(const char *s)
{
	if (!*s)
		return false;
	for (; *s; s++)
		if (!isalnum((unsigned char)*s) && !strchr("-._", *s))
			return false;
	return true;
}

/* An IPv6 literal, with an optional scope ("%eth0"). */
static bool is_ipv6(const char *s)
{
	char addr[INET6_ADDRSTRLEN];
	struct in6_addr in6;
	size_t n = strcspn(s, "%");

	if (n >= sizeof(addr) || (s[n] && !is_host_name(s + n + 1)))
		return false;
	memcpy(addr, s, n);
	addr[n] = 0;
	return inet_pton(AF_INET6, addr, &in6) == 1;
}

static int set_host(struct pool_hostport *hp, const char *host, size_t len)
{
	if (len > POOL_HOST_MAX)
		return -EINVAL;
	memcpy(hp->host, host, len);
	hp->host[len] = 0;
	return 0;
}

/* rest: "" or ":port" */
static int set_port(struct pool_hostport *hp, const char *rest,
		    uint16_t default_port)
{
	uint64_t port = default_port;
	int err = 0;

	if (*rest == ':')
		err = pool_parse_u64(rest + 1, 0, UINT16_MAX, &port);
	else if (*rest || !default_port)
		err = -EINVAL;
	hp->port = (uint16_t)port;
	return err;
}

int pool_parse_hostport(const char *text, uint16_t default_port,
			struct pool_hostport *ret_hp)
{
	struct pool_hostport hp = { 0 };
	const char *end;
	bool good;
	int err;

	if (*text == '[') {
		end = strchr(++text, ']');
		if (!end)
			return -EINVAL;
		err = set_host(&hp, text, (size_t)(end - text));
		good = !err && is_ipv6(hp.host);
		end++;
	} else {
		end = strchrnul(text, ':');
		err = set_host(&hp, text, (size_t)(end - text));
		good = !err && is_host_name(hp.host);
	}
	if (!good)
		return -EINVAL;
	err = set_port(&hp, end, default_port);
	if (!err)
		*ret_hp = hp;
	return err;
}

int pool_parse_hostports(const char *text, uint16_t default_port,
			 struct pool_hostports *ret_list)
{
	struct pool_hostports list = { 0 };
	char one[POOL_HOSTPORT_TEXT];
	size_t len;
	int err;

	do {
		len = strcspn(text, ",");
		if (list.n == POOL_HOSTPORTS_MAX || len >= sizeof(one))
			return -EINVAL;
		memcpy(one, text, len);
		one[len] = 0;
		err = pool_parse_hostport(one, default_port,
					  &list.at[list.n++]);
		if (err)
			return err;
		text += len + 1;
	} while (text[-1]);
	*ret_list = list;
	return 0;
}

bool pool_host_is_loopback(const char *host)
{
	struct in_addr in;
	struct in6_addr in6;

	if (inet_pton(AF_INET, host, &in) == 1)
		return ntohl(in.s_addr) >> 24 == 127;
	if (inet_pton(AF_INET6, host, &in6) == 1)
		return IN6_IS_ADDR_LOOPBACK(&in6) ||
		       (IN6_IS_ADDR_V4MAPPED(&in6) && in6.s6_addr[12] == 127);
	return !strcasecmp(host, "localhost");
}

bool pool_host_is_wildcard(const char *host)
{
	struct in_addr in;
	struct in6_addr in6;

	if (inet_aton(host, &in)) /* accepts "0", as getaddrinfo does */
		return in.s_addr == 0;
	if (inet_pton(AF_INET6, host, &in6) != 1)
		return false;
	return IN6_IS_ADDR_UNSPECIFIED(&in6) ||
	       (IN6_IS_ADDR_V4MAPPED(&in6) && in6.s6_addr32[3] == 0);
}

/* ---- printing ---- */

char *pool_format_hostport(const struct pool_hostport *hp, char *buf,
			   size_t cap)
{
	snprintf(buf, cap, strchr(hp->host, ':') ? "[%s]:%u" : "%s:%u",
		 hp->host, hp->port);
	return buf;
}

char *pool_format_size(uint64_t bytes, char *buf, size_t cap)
{
	static const char letters[] = "KMGTPE";
	uint64_t tenths = 0;
	unsigned int i;

	assert(cap >= 16);
	if (bytes < 1024) {
		snprintf(buf, cap, "%u B", (unsigned int)bytes);
		return buf;
	}
	for (i = 0; i < 6; i++) {
		unsigned __int128 unit = (unsigned __int128)1024 << (10 * i);

		tenths = (uint64_t)((bytes * (unsigned __int128)10 + unit / 2) /
				    unit);
		if (tenths < 10240) /* not "1024.0 KiB" but "1.0 MiB" */
			break;
	}
	snprintf(buf, cap, "%u.%u %ciB", (unsigned int)(tenths / 10),
		 (unsigned int)(tenths % 10), letters[i]);
	return buf;
}
