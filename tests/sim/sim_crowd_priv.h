/* Shared by the sim_crowd*.c files; see tests/sim/sim_crowd.h. */
#ifndef TESTS_SIM_CROWD_PRIV_H
#define TESTS_SIM_CROWD_PRIV_H

#include "tests/sim/sim_crowd.h"

/* n drops its copy of the key: number `copy` (sim_key_copy). */
void sim_node_drop(struct sim_node *n, uint32_t key, int copy);
/* Removes from n's list duplicates and keys that n does not hold. */
void sim_node_tidy(struct sim_node *n);

void sim_say_join(struct sim_node *n);
void sim_say_heartbeat(struct sim_node *n);
void sim_say_held(struct sim_node *n, uint32_t key, uint64_t gen, int status);
/* Callback of n->list_more: sends more of the inventory, while little is queued
 * on the connection (a thousand inventories in memory would be a gigabyte).
 * When all of it is sent, the node is up. */
void sim_say_inventory(struct sim_event *e);
/* Callback of n->ack: acks the feed. */
void sim_say_ack(struct sim_event *e);

#endif
