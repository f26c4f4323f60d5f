/*
 * Parsing of what people type: sizes, durations, counts, addresses, booleans;
 * and its inverse for printing.
 *
 * Thread: any, no state. All return 0 or -EINVAL / -ERANGE and write their
 * result only on success; leading or trailing blanks are errors.
 */
#ifndef POOL_BASE_PARSE_H
#define POOL_BASE_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * "1048576", "50G", "50gb", "50GiB", "1.5T": a decimal number and an optional
 * unit, any case: K M G T P, alone or with B or iB, all powers of 1024. A
 * fraction needs a unit; what it leaves of a byte is dropped.
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
 * "host:port", "[::1]:port"; a missing ":port" takes default_port (0: the port
 * is required). ":0" may be asked for: any port, for listening. Names are not
 * resolved here.
 */
int pool_parse_hostport(const char *text, uint16_t default_port,
			struct pool_hostport *ret_hp);
#define POOL_HOSTPORTS_MAX 8
struct pool_hostports {
	unsigned int n; /* 0: none are known */
	struct pool_hostport at[POOL_HOSTPORTS_MAX];
};
/* One or several of these, with commas between. */
int pool_parse_hostports(const char *text, uint16_t default_port,
			 struct pool_hostports *ret_list);
/* "host:port" or "[::1]:port" into buf (>= POOL_HOSTPORT_TEXT bytes). */
#define POOL_HOSTPORT_TEXT (POOL_HOST_MAX + 16)
char *pool_format_hostport(const struct pool_hostport *hp, char *buf,
			   size_t cap);
/* Is host a loopback address literal, or "localhost"? */
bool pool_host_is_loopback(const char *host);
/* Is host the address of no host, which means "all" when listened on? */
bool pool_host_is_wildcard(const char *host);

/* "4.0 GiB" into buf (>= 16 bytes); returns buf. */
char *pool_format_size(uint64_t bytes, char *buf, size_t cap);

#endif
