/*
 * The root of the namespace, as masters and nodes agree on it.
 *
 * No request creates it, so it has no attributes until a user sets them. Each
 * mount shows defaults instead (POOL_ROOT_MODE, the user of its daemon, the
 * time of its start). The master keeps the attributes that users set; Meta.set
 * of the root names them (POOL_ROOT_RECORDED). The other attributes in that
 * Meta are for older nodes, which ignore `set`.
 */
#ifndef POOL_MODEL_ROOT_H
#define POOL_MODEL_ROOT_H

#include "pool/conn/wire.h"

/* As /tmp: every user may create names, but remove and rename only their own.
 */
#define POOL_ROOT_MODE 01777u

/* Meta.set of the root: the POOL_SET_* bits of the attributes that users have
 * set, and this one. 0: sent by an older master, which does not record them. */
#define POOL_ROOT_RECORDED 0x100u
#define POOL_ROOT_SETS \
	(POOL_SET_MODE | POOL_SET_UID | POOL_SET_GID | POOL_SET_MTIME)

/* Inode numbers below this are for .kvpool and its files, all others for users'
 * files and directories. */
#define POOL_ROOT_INO_MIN 8

#endif
