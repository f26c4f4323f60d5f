/* Prints the frames that the simulated processes exchange. */
#include "tests/sim/sim_nodes.h"

#include <stdio.h>
#include <string.h>

static struct sn *the;

static void who(const struct sim_host *h, char buf[16])
{
	const struct sn_proc *p = pool_container_of(h, struct sn_proc, host);

	if (p->index < SN_NODES)
		snprintf(buf, 16, "node %u", p->index);
	else
		snprintf(buf, 16, "master");
}

static void say_meta(const char *head, const char *what,
		     const Kvpool__Meta *m)
{
	sn_say(the, "%s  %s %.*s gen %llx base %llx%s holders %zu", head, what,
	       (int)m->path.len, (const char *)m->path.data,
	       (unsigned long long)m->gen, (unsigned long long)m->base_gen,
	       m->deleted ? " deleted" : "", m->n_holders);
}

static void say_metas(const char *head, const char *what, size_t n,
		      Kvpool__Meta **m)
{
	size_t i;

	for (i = 0; i < n; i++)
		say_meta(head, what, m[i]);
}

static void say_ops(const char *head, const Kvpool__Ops *o)
{
	static const char *const kinds[] = { "PUBLISH", "UNLINK", "MKDIR",
					     "RMDIR", "SETATTR" };
	size_t i;

	for (i = 0; i < o->n_ops; i++) {
		char what[64];

		snprintf(what, sizeof(what), "%s%s%s seen %llx",
			 o->ops[i]->kind < 5 ? kinds[o->ops[i]->kind] : "?",
			 o->ops[i]->queued ? " (queued)" : "",
			 o->ops[i]->again ? " (again)" : "",
			 (unsigned long long)o->ops[i]->meta->seen_gen);
		say_meta(head, what, o->ops[i]->meta);
	}
}

static void say_done(const char *head, const Kvpool__OpsDone *d)
{
	size_t i;

	for (i = 0; i < d->n_results; i++)
		sn_say(the, "%s  OPS_DONE gen %llx: %s", head,
		       (unsigned long long)d->results[i]->gen,
		       d->results[i]->status ?
			       strerror(-d->results[i]->status) : "done");
}

static void say_drop(const char *head, const Kvpool__Drop *d)
{
	static const char *const why[] = { "EVICTED", "DELETED", "SUPERSEDED",
					   "KEEP", "SURPLUS" };
	size_t i;

	for (i = 0; i < d->n_items; i++)
		sn_say(the, "%s  DROP %.*s gen %llx %s", head,
		       (int)d->items[i]->path.len,
		       (const char *)d->items[i]->path.data,
		       (unsigned long long)d->items[i]->gen,
		       d->items[i]->reason < 5 ? why[d->items[i]->reason] :
						 "?");
}

static void say_held(const char *head, const Kvpool__Held *h)
{
	size_t i;

	for (i = 0; i < h->n_items; i++)
		sn_say(the, "%s  HELD %.*s gen %llx: %d", head,
		       (int)h->items[i]->path.len,
		       (const char *)h->items[i]->path.data,
		       (unsigned long long)h->items[i]->gen,
		       h->items[i]->status);
}

static void say_frame(const char *head, const struct pool_frame *f,
		      const uint8_t *payload)
{
	const ProtobufCMessageDescriptor *desc =
		f->type == POOL_MSG_OPS ? &kvpool__ops__descriptor :
		f->type == POOL_MSG_OPS_DONE ? &kvpool__ops_done__descriptor :
		f->type == POOL_MSG_INVENTORY ? &kvpool__inventory__descriptor :
		f->type == POOL_MSG_FEED ? &kvpool__feed__descriptor :
		f->type == POOL_MSG_DROP ? &kvpool__drop__descriptor :
		f->type == POOL_MSG_EVICT ? &kvpool__evict__descriptor :
		f->type == POOL_MSG_HELD ? &kvpool__held__descriptor :
		f->type == POOL_MSG_REPLICATE ? &kvpool__replicate__descriptor :
		f->type == POOL_MSG_ERROR ? &kvpool__error__descriptor :
						NULL;
	ProtobufCMessage *m = desc ? protobuf_c_message_unpack(
					     desc, NULL, f->payload_len,
					     payload) : NULL;

	if (!m) {
		if (f->type != POOL_MSG_HEARTBEAT)
			sn_say(the, "%s  %s", head, pool_msg_name(f->type));
		return;
	}
	if (f->type == POOL_MSG_ERROR)
		sn_say(the, "%s  ERROR %s", head, ((Kvpool__Error *)m)->text);
	if (f->type == POOL_MSG_OPS)
		say_ops(head, (Kvpool__Ops *)m);
	if (f->type == POOL_MSG_OPS_DONE)
		say_done(head, (Kvpool__OpsDone *)m);
	if (f->type == POOL_MSG_DROP)
		say_drop(head, (Kvpool__Drop *)m);
	if (f->type == POOL_MSG_HELD)
		say_held(head, (Kvpool__Held *)m);
	if (f->type == POOL_MSG_INVENTORY)
		say_metas(head, "INVENTORY",
			  ((Kvpool__Inventory *)m)->n_entries,
			  ((Kvpool__Inventory *)m)->entries);
	if (f->type == POOL_MSG_FEED)
		say_metas(head, ((Kvpool__Feed *)m)->begin ? "FEED (anew)" :
							     "FEED",
			  ((Kvpool__Feed *)m)->n_entries,
			  ((Kvpool__Feed *)m)->entries);
	if (f->type == POOL_MSG_EVICT)
		say_metas(head, "EVICT", ((Kvpool__Evict *)m)->n_entries,
			  ((Kvpool__Evict *)m)->entries);
	if (f->type == POOL_MSG_REPLICATE)
		say_metas(head, "REPLICATE",
			  ((Kvpool__Replicate *)m)->n_entries,
			  ((Kvpool__Replicate *)m)->entries);
	protobuf_c_message_free_unpacked(m, NULL);
}

void sn_trace_frame(const struct sim_host *from, const struct sim_host *to,
		    const struct pool_frame *f, const uint8_t *payload,
		    const char *lost)
{
	const struct sn_proc *p =
		pool_container_of(from, struct sn_proc, host);
	char head[64], a[16], b[16];

	if (!lost)
		sn_check_frame(the, p, f, payload);
	if (!the->trace)
		return;
	who(from, a);
	who(to, b);
	snprintf(head, sizeof(head), "%s > %s%s%s", a, b,
		 lost ? ", LOST: " : "", lost ? lost : "");
	say_frame(head, f, payload);
}

static void on_send(const struct sim_host *from, const struct pool_frame *f,
		    const uint8_t *payload)
{
	sn_check_sent(the, pool_container_of(from, struct sn_proc, host), f,
		      payload);
}

void sn_trace_open(struct sn *s)
{
	the = s;
	sim_net_on_send(on_send);
	sim_net_on_frame(sn_trace_frame);
}
