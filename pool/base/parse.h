/*
 * Parsing of options: sizes, durations, counts, addresses, booleans; and
 * formatting of sizes and addresses.
 *
 * Thread: any, no state. Parsers return 0, -EINVAL or -ERANGE and write their
 * result only on success. Leading or trailing blanks are errors.
 */
#ifndef POOL_BASE_PARSE_H
#define POOL_BASE_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * "1048576", "50G", "50gb", "50GiB", "1.5T": a decimal number and an optional
 * unit in any case: K M G T P, alone or with B or iB, all powers of 1024. A
 * fraction needs a unit; the result is rounded down to bytes.
 */
int pool_parse_size(const char *text, uint64_t *ret_bytes);
/* "500ms", "1.5s", "10m", "1h", "1d"; a bare number is seconds. */
int pool_parse_duration_ms(const char *text, uint64_t *ret_ms);
/* Decimal digits only; -ERANGE outside min..max. */
int pool_parse_u64(const char *text, uint64_t min, uint64_t max,
		   uint64_t *ret_value);
/* 1/0, true/false, yes/no, on/off. */
int pool_parse_bool(const char *text, bool *ret_value);

#define POOL_HOST_MAX 255
struct pool_hostport {
	char host[POOL_HOST_MAX + 1]; /* name or address, no brackets */
	uint16_t port;
};
/*
 * "host:port" or "[::1]:port". Without ":port", default_port is used; if that
 * is 0, the port is required. Port 0 is accepted: listeners use any free port.
 * Names are not resolved.
 */
int pool_parse_hostport(const char *text, uint16_t default_port,
			struct pool_hostport *ret_hp);
#define POOL_HOSTPORTS_MAX 8
struct pool_hostports {
	unsigned int n;
	struct pool_hostport at[POOL_HOSTPORTS_MAX];
};
/* 1 to POOL_HOSTPORTS_MAX such addresses, separated by commas. */
int pool_parse_hostports(const char *text, uint16_t default_port,
			 struct pool_hostports *ret_list);
/* Write "host:port" or "[::1]:port" to buf (>= POOL_HOSTPORT_TEXT bytes);
 * returns buf. */
#define POOL_HOSTPORT_TEXT (POOL_HOST_MAX + 16)
char *pool_format_hostport(const struct pool_hostport *hp, char *buf,
			   size_t cap);
/* Is host a loopback address literal, or "localhost"? */
bool pool_host_is_loopback(const char *host);
/* Is host the unspecified address ("0.0.0.0", "::")? Listening there means
 * listening on all addresses. */
bool pool_host_is_wildcard(const char *host);

/* Write "4.0 GiB" to buf (>= 16 bytes); returns buf. */
char *pool_format_size(uint64_t bytes, char *buf, size_t cap);

#endif
