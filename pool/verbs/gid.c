/* Addresses of ports: choosing our own, validating a peer's. */
#include <arpa/inet.h>
#include <string.h>

#include "pool/verbs/verbs_priv.h"

#define QPN_MAX 0xffffffu
#define LID_MAX 0xbfffu /* from 0xc000 on: multicast */

static bool is_ipv4(const uint8_t gid[16])
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	return memcmp(gid, mapped, sizeof(mapped)) == 0;
}

static bool is_link_local(const uint8_t gid[16])
{
	return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80;
}

static bool verbs_gid_unicast(const uint8_t gid[16])
{
	static const uint8_t zero[15];

	if (is_ipv4(gid))
		return gid[12] != 0 && gid[12] != 127 && gid[12] < 224;
	/* "::", "::1", ff00::/8 */
	return gid[0] != 0xff &&
	       (memcmp(gid, zero, sizeof(zero)) != 0 || gid[15] > 1);
}

char *verbs_gid_format(const uint8_t gid[16], char *buf)
{
	if (is_ipv4(gid))
		inet_ntop(AF_INET, gid + 12, buf, VERBS_GID_TEXT);
	else
		inet_ntop(AF_INET6, gid, buf, VERBS_GID_TEXT);
	return buf;
}

/* The preference of an address, higher is better; 0: unusable. */
static int rank(const struct ibv_gid_entry *g, enum verbs_link link)
{
	int address = is_link_local(g->gid.raw) ? 1 :
		      is_ipv4(g->gid.raw)	? 3 :
						  2;

	if (!verbs_gid_unicast(g->gid.raw))
		return 0;
	if (link != VERBS_ROCE)
		return 1;
	switch (g->gid_type) {
	case IBV_GID_TYPE_ROCE_V2:
		return 10 + address;
	case IBV_GID_TYPE_ROCE_V1:
		return address;
	default:
		return 0;
	}
}

const struct ibv_gid_entry *verbs_gid_choose(const struct ibv_gid_entry *gids,
					     size_t n, uint32_t port,
					     enum verbs_link link)
{
	const struct ibv_gid_entry *best = NULL;

	for (size_t i = 0; i < n; i++) {
		if (gids[i].port_num != port || gids[i].gid_index > UINT8_MAX ||
		    !rank(&gids[i], link))
			continue;
		if (!best || rank(&gids[i], link) > rank(best, link))
			best = &gids[i];
	}
	return best;
}

static const char *route_wrong(const struct verbs_address *a,
			       const struct verbs_port *port)
{
	if (!verbs_gid_unicast(a->gid))
		return "the GID is not a unicast address; accepted: unicast";
	if (port->link == VERBS_ROCE)
		return NULL;
	if (a->lid == 0 || a->lid > LID_MAX)
		return "the LID is out of range; accepted: 1 to 49151";
	/* The first half of a GID is the subnet prefix. */
	if (memcmp(a->gid, port->gid.raw, 8) != 0)
		return "the GID is of another subnet; accepted: the port's";
	return NULL;
}

const char *verbs_address_wrong(const struct verbs_address *a,
				const struct verbs_port *port)
{
	if (a->link != port->link)
		return "another network type; accepted: the port's own";
	if (a->link != VERBS_ROCE && a->link != VERBS_INFINIBAND)
		return "iWARP needs librdmacm; accepted: InfiniBand, RoCE";
	/* 0 and 1 are management queue pairs, the last is multicast. */
	if (a->qpn < 2 || a->qpn >= QPN_MAX)
		return "the QP number is out of range; accepted: 2 to 16777214";
	if (a->psn > QPN_MAX)
		return "the PSN is out of range; accepted: up to 16777215";
	if (a->mtu < IBV_MTU_256 || a->mtu > IBV_MTU_4096)
		return "no such MTU; accepted: 1 (256 bytes) to 5 (4096)";
	if (!a->reads_in || !a->reads_out)
		return "0 READs in flight; accepted: 1 to 255";
	return route_wrong(a, port);
}
