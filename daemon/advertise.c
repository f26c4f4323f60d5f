#include "daemon/advertise.h"

#include "pool/base/log.h"

#define NODE_PORT 7072

int daemon_advertise_check(const struct daemon_option *listen,
			   const struct daemon_option *advertise, FILE *err)
{
	const struct pool_hostport *hp = listen->value;
	const char *text = *(const char **)advertise->value;
	struct pool_hostport addr;

	if (text) {
		if (pool_parse_hostport(text, NODE_PORT, &addr) == 0 &&
		    !pool_host_is_wildcard(addr.host))
			return 0;
		return daemon_option_reject(
			advertise,
			"HOST:PORT by which other nodes reach this one", err);
	}
	if (!pool_host_is_wildcard(hp->host))
		return 0;
	return daemon_option_reject(
		listen,
		"the address by which other nodes reach this one; or this one "
		"together with --advertise HOST:PORT, as no node can reach "
		"it",
		err);
}

void daemon_advertise_warn(const struct pool_hostport *listen,
			   const char *advertise,
			   const struct pool_hostport *master)
{
	struct pool_hostport addr = *listen;

	if (advertise)
		(void)pool_parse_hostport(advertise, NODE_PORT, &addr);
	if (pool_host_is_loopback(addr.host) &&
	    !pool_host_is_loopback(master->host))
		pool_warn("nodes of other hosts cannot fetch from this one: "
			  "its address is %s:%u - give --listen "
			  "ADDRESS:%u --insecure, or --advertise",
			  addr.host, addr.port, addr.port);
}
