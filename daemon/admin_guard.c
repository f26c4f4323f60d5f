#include "daemon/admin_guard.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <limits.h>
#include <netinet/in.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "pool/base/parse.h"

bool admin_is_loopback(const struct sockaddr *sa)
{
	const struct sockaddr_in *v4 =
		(const struct sockaddr_in *)(const void *)sa;
	const struct sockaddr_in6 *v6 =
		(const struct sockaddr_in6 *)(const void *)sa;

	if (sa->sa_family == AF_INET)
		return ntohl(v4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
	if (sa->sa_family != AF_INET6)
		return false;
	if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr))
		return v6->sin6_addr.s6_addr[12] == IN_LOOPBACKNET;
	return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

bool admin_same_address(const struct sockaddr *a, const struct sockaddr *b)
{
	const struct sockaddr_in
		*a4 = (const struct sockaddr_in *)(const void *)a,
		*b4 = (const struct sockaddr_in *)(const void *)b;
	const struct sockaddr_in6 *a6 =
		(const struct sockaddr_in6 *)(const void *)a;
	const struct sockaddr_in6 *b6 =
		(const struct sockaddr_in6 *)(const void *)b;

	if (admin_is_loopback(a) || admin_is_loopback(b))
		return admin_is_loopback(a) && admin_is_loopback(b);
	if (a->sa_family != b->sa_family)
		return false;
	if (a->sa_family == AF_INET)
		return a4->sin_addr.s_addr == b4->sin_addr.s_addr;
	return a->sa_family == AF_INET6 &&
	       IN6_ARE_ADDR_EQUAL(&a6->sin6_addr, &b6->sin6_addr);
}

static bool is_name(const char *word, size_t len)
{
	if (len == 0 || len > POOL_HOST_MAX)
		return false;
	for (size_t i = 0; i < len; i++)
		if (!isalnum((unsigned char)word[i]) &&
		    !strchr("-._", word[i]))
			return false;
	return true;
}

bool admin_names_valid(const char *list)
{
	while (list) {
		size_t len = strcspn(list, ",");

		if (!is_name(list, len))
			return false;
		list = list[len] ? list + len + 1 : NULL;
	}
	return true;
}

/* Strips brackets, the port and the trailing dot of a name. */
static bool bare_host(const char *host, char name[POOL_HOST_MAX + 1])
{
	const char *from = host[0] == '[' ? host + 1 : host;
	size_t len = strcspn(from, host[0] == '[' ? "]" : ":");

	if (len > 0 && from == host && from[len - 1] == '.')
		len--;
	if (len == 0 || len > POOL_HOST_MAX)
		return false;
	memcpy(name, from, len);
	name[len] = '\0';
	return true;
}

/* Reads an address; IPv4 becomes IPv4-mapped IPv6. */
static bool read_address(const char *text, struct in6_addr *ret)
{
	memset(ret, 0, sizeof(*ret));
	memset(&ret->s6_addr[10], 0xff, 2);
	return inet_pton(AF_INET, text, &ret->s6_addr[12]) == 1 ||
	       inet_pton(AF_INET6, text, ret) == 1;
}

static bool is_address(const char *name, const struct sockaddr *own)
{
	const struct sockaddr_in *in4 = (const void *)own;
	const struct sockaddr_in6 *in6 = (const void *)own;
	struct in6_addr a;

	if (!read_address(name, &a))
		return false;
	if (own->sa_family == AF_INET6)
		return IN6_ARE_ADDR_EQUAL(&a, &in6->sin6_addr);
	return own->sa_family == AF_INET && IN6_IS_ADDR_V4MAPPED(&a) &&
	       memcmp(&a.s6_addr[12], &in4->sin_addr, 4) == 0;
}

static bool is_listed(const char *name, const char *list)
{
	size_t want = strlen(name);

	while (list) {
		size_t len = strcspn(list, ",");

		if (len == want && strncasecmp(list, name, len) == 0)
			return true;
		list = list[len] ? list + len + 1 : NULL;
	}
	return false;
}

static bool is_this_machine(const char *name)
{
	char own[HOST_NAME_MAX + 1] = "";

	return gethostname(own, sizeof(own) - 1) == 0 && own[0] &&
	       strcasecmp(own, name) == 0;
}

bool admin_host_is_ours(const char *host, const struct sockaddr *own,
			const char *listen, const char *names)
{
	char name[POOL_HOST_MAX + 1];

	return bare_host(host, name) &&
	       (pool_host_is_loopback(name) || is_address(name, own) ||
		(listen && strcasecmp(listen, name) == 0) ||
		is_listed(name, names) || is_this_machine(name));
}

bool admin_origin_is(const char *origin, bool tls, const char *host)
{
	const char *scheme = tls ? "https://" : "http://";
	size_t len = strlen(scheme);

	return strncasecmp(origin, scheme, len) == 0 &&
	       strcasecmp(origin + len, host) == 0;
}
