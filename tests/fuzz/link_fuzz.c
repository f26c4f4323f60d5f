/*
 * Fuzz target: what a peer says about links: LINK and BUFFER, and the address
 * in a LINK, judged for a port of each kind.
 *
 * Besides not crashing: what passes is within the ranges that the device is
 * given, and the text is fit for a log.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "pool/lane/link.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int cond)
{
	if (!cond)
		abort();
}

static void check_address(const struct verbs_address *a)
{
	for (int link = VERBS_INFINIBAND; link <= VERBS_IWARP; link++) {
		struct verbs_port port = { .link = (enum verbs_link)link,
					   .lid = 7,
					   .mtu = IBV_MTU_4096,
					   .reads_in = 16,
					   .reads_out = 16 };

		if (verbs_address_wrong(a, &port))
			continue;
		require(a->link == port.link);
		require(a->qpn > 0 && a->qpn < 1u << 24 && a->psn < 1u << 24);
		require(a->mtu >= IBV_MTU_256 && a->mtu <= IBV_MTU_4096);
	}
}

static void check_text(const char *text)
{
	for (; *text; text++)
		require(*text >= ' ' && *text < 127);
}

static void check_link(const uint8_t *payload, size_t len)
{
	struct link_msg msg;

	if (!link_msg_read(payload, len, &msg))
		return;
	require(msg.word >= LINK_OFFER && msg.word <= LINK_DOWN);
	require(memchr(msg.text, 0, sizeof(msg.text)) != NULL);
	check_text(msg.text);
	if (msg.word == LINK_OFFER || msg.word == LINK_ACCEPT)
		check_address(&msg.address);
}

static void check_buffer(const uint8_t *payload, size_t len)
{
	struct link_buffer b;

	if (!link_buffer_read(payload, len, &b))
		return;
	require(b.length <= POOL_BULK_MAX);
	require(b.at <= POOL_BULK_MAX - b.length);
	require(b.addr + b.length >= b.addr);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* At its exact size, so that a read beyond it is seen. */
	uint8_t *copy = malloc(size ? size : 1);

	require(copy != NULL);
	if (size)
		memcpy(copy, data, size);
	check_link(copy, size);
	check_buffer(copy, size);
	free(copy);
	return 0;
}
