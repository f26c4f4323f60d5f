/*
 * The root of the namespace, as masters and nodes agree on it.
 *
 * Nobody makes it, so its attributes are nobody's until somebody sets them:
 * until then each mount shows its own (POOL_ROOT_MODE, the user of its daemon,
 * the time of its start). What was set is kept by the master, which says with
 * the root's Meta what that is (POOL_ROOT_TOLD); the rest of that Meta is for
 * nodes that do not ask.
 */
#ifndef POOL_MODEL_ROOT_H
#define POOL_MODEL_ROOT_H

#include "pool/conn/wire.h"

/* As /tmp: everybody may make names, and touch their own only. */
#define POOL_ROOT_MODE 01777u

/* Meta.set of the root: the POOL_SET_* bits of what somebody has set, and this
 * one. 0: said by a master that does not tell them apart. */
#define POOL_ROOT_TOLD 0x100u
#define POOL_ROOT_SETS \
	(POOL_SET_MODE | POOL_SET_UID | POOL_SET_GID | POOL_SET_MTIME)

/* The inode numbers of what a mount has in .kvpool are smaller; those of what
 * users have made are not. */
#define POOL_ROOT_INO_MIN 8

#endif
