/* What the sim_crowd*.c files share; see tests/sim_crowd.h. */
#ifndef TESTS_SIM_CROWD_PRIV_H
#define TESTS_SIM_CROWD_PRIV_H

#include "tests/sim/sim_crowd.h"

/* It drops that copy of the key (sim_key_copy). */
void sim_node_drop(struct sim_node *n, uint32_t key, int copy);
/* What it does not hold leaves its list, and what is there twice. */
void sim_node_tidy(struct sim_node *n);

void sim_say_join(struct sim_node *n);
void sim_say_heartbeat(struct sim_node *n);
void sim_say_held(struct sim_node *n, uint32_t key, uint64_t gen, int status);
/* Of n->tell: more of its inventory, but no more than the master takes - a
 * thousand whole ones in memory at once would be a gigabyte. With the last of it
 * the node is up. */
void sim_say_inventory(struct sim_event *e);
/* Of n->ack: the feed is applied. */
void sim_say_ack(struct sim_event *e);

#endif
