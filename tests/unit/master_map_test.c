/*
 * Names, graves, holders and rules of the map; figures of members.
 */
#include "tests/lib/unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "master/account.h"
#include "master/members.h"
#include "tests/unit/master_tomb.h"

static const struct master_attrs attrs = { .mode = 0644, .uid = 7, .gid = 8 };

static int setup(void **state)
{
	static struct master_map m;

	*state = &m;
	return master_map_init(&m, 4, 4);
}

static int teardown(void **state)
{
	master_map_check(*state);
	master_map_fini(*state);
	return 0;
}

static int make(struct master_map *m, const char *path, struct master_file **f)
{
	bool made;

	return master_map_make_file(m, path, strlen(path), &attrs, f, &made);
}

static struct master_file *put(struct master_map *m, const char *path)
{
	struct master_file *f = NULL;

	assert_int_equal(0, make(m, path, &f));
	f->gen = 5;
	master_map_touch_file(m, f);
	return f;
}

static uint64_t lost_wall(struct master_map *m, uint32_t uid)
{
	uint64_t wall_ns = 0, seq = 0;

	master_owners_lost(&m->owners, master_account_of_owner(uid), &wall_ns,
			   &seq);
	return wall_ns;
}

static void a_file_brings_its_directories(void **state)
{
	struct master_map *m = *state;
	struct master_file *f = put(m, "model/ab/key.bin");
	struct master_dir *d;

	assert_ptr_equal(f, master_map_file(m, "model/ab/key.bin", 16));
	assert_int_equal(1, m->nfiles);
	assert_int_equal(2, m->ndirs);
	d = master_map_dir(m, "model/ab", 8);
	assert_non_null(d);
	assert_int_equal(0755, d->mode);
	assert_int_equal(7, d->uid);
	assert_int_equal(0, d->made);
	assert_true(d->item.seq < f->item.seq);
}

static void a_path_through_a_file_or_over_a_directory_is_refused(void **state)
{
	struct master_map *m = *state;
	struct master_file *f;
	struct master_dir *d;
	bool made;

	put(m, "a/b");
	assert_int_equal(-ENOTDIR, make(m, "a/b/c", &f));
	assert_int_equal(-EISDIR, make(m, "a", &f));
	assert_int_equal(-EINVAL, make(m, "a/../b", &f));
	assert_int_equal(-ENOTDIR,
			 master_map_make_dir(m, "a/b", 3, &attrs, &d, &made));
}

static void a_directory_with_names_below_stays(void **state)
{
	struct master_map *m = *state;
	struct master_file *f = put(m, "a/b");
	struct master_dir *d = master_map_dir(m, "a", 1);

	assert_int_equal(-ENOTEMPTY, master_map_remove_dir(m, d, 1));
	assert_int_equal(0, master_map_remove_file(m, f, 9, 1));
	assert_int_equal(0, master_map_remove_dir(m, d, 1));
	assert_int_equal(-EBUSY, master_map_remove_dir(
					 m, master_map_dir(m, "", 0), 1));
	assert_int_equal(1, master_map_grave(m, "a", 1)->is_dir);
	assert_int_equal(0, m->ndirs);
}

static void a_tombstone_holds_until_the_name_is_back(void **state)
{
	struct master_map *m = *state;

	master_map_remove_file(m, put(m, "k"), 9, 1);
	assert_int_equal(9, tomb_gen(m, "k", 1));
	assert_int_equal(1, m->ntombs);
	assert_int_equal(0, m->nfiles);
	put(m, "k");
	assert_int_equal(0, tomb_gen(m, "k", 1));
	assert_int_equal(0, m->ntombs);
}

static void a_name_that_merely_left_may_come_back(void **state)
{
	struct master_map *m = *state;

	master_map_remove_file(m, put(m, "k"), 0, 1);
	assert_int_equal(0, tomb_gen(m, "k", 1));
	assert_int_equal(1, m->nghosts);
}

static struct master_dir *put_dir(struct master_map *m, const char *path)
{
	struct master_dir *d = NULL;
	bool made;

	assert_int_equal(0, master_map_make_dir(m, path, strlen(path), &attrs,
						&d, &made));
	return d;
}

static void a_tombstone_outlives_a_directory_of_the_name(void **state)
{
	struct master_map *m = *state;
	int i;

	master_map_remove_file(m, put(m, "k"), 9, 1);
	for (i = 0; i < 2; i++) {
		struct master_dir *d = put_dir(m, "k");

		assert_null(master_map_grave(m, "k", 1));
		assert_int_equal(9, master_map_grave_below(m, "k", 1)->gen);
		master_map_check(m);
		assert_int_equal(0, master_map_remove_dir(m, d, 2));
		assert_int_equal(9, tomb_gen(m, "k", 1));
		assert_int_equal(1, m->ntombs);
		assert_true(master_map_grave(m, "k", 1)->is_dir);
		master_map_check(m);
	}
	assert_true(put(m, "k")->had_older);
	assert_true(master_map_file(m, "k", 1)->was_dir);
	assert_int_equal(0, m->ntombs);
}

/* A node reports an eviction after others have created a directory of that
 * name. */
static void what_was_evicted_may_have_become_a_directory(void **state)
{
	struct master_map *m = *state;
	struct master_dir *d = put_dir(m, "k");

	assert_int_equal(0, master_map_add_evicted(m, "k", 1, 7, 5, 1));
	assert_int_equal(0, m->ntombs);
	master_map_check(m);
	assert_int_equal(0, master_map_remove_dir(m, d, 2));
	assert_int_equal(4, tomb_gen(m, "k", 1));
	assert_int_equal(5, master_map_grave(m, "k", 1)->last_gen);
	put_dir(m, "k"); /* freed with the map */
}

/* Subscribers have removed the evicted name already, so a tombstone in place of
 * its ghost is not sent to them; a greater generation is. */
static void what_is_buried_again_is_sent_again_only_if_it_changes(
	void **state)
{
	struct master_map *m = *state;
	struct master_grave *g;
	uint64_t seq;

	master_map_remove_file(m, put(m, "d/k"), 0, 1);
	assert_int_equal(0, master_map_remove_dir(m, master_map_dir(m, "d", 1),
						  1));
	seq = m->feed.seq;
	assert_int_equal(0, master_map_add_tomb(m, "d/k", 3, 7, 5, 2));
	assert_int_equal(5, tomb_gen(m, "d/k", 3));
	assert_int_equal(1, m->nghosts); /* d's */
	assert_int_equal(1, m->ntombs);
	assert_int_equal(seq, m->feed.seq);
	g = master_map_grave(m, "d/k", 3);
	assert_true(g->item.seq < master_map_grave(m, "d", 1)->item.seq);
	assert_int_equal(0, master_map_add_tomb(m, "d/k", 3, 7, 6, 3));
	assert_int_equal(6, tomb_gen(m, "d/k", 3));
	assert_int_equal(seq + 1, g->item.seq);
	assert_int_equal(1, m->ntombs);
}

/* The record of a blind write, or of who deleted the name, belongs to the
 * earlier version. */
static void what_is_buried_again_has_nothing_of_its_first_burial(void **state)
{
	struct master_map *m = *state;
	struct master_grave *g;

	assert_int_equal(0, master_map_add_tomb(m, "d/k", 3, 7, 5, 1));
	g = master_map_grave(m, "d/k", 3);
	assert_non_null(g);
	g->by_run = 7;
	g->by_ticket = 8;
	g->blind = 1;
	assert_int_equal(0, master_map_add_tomb(m, "d/k", 3, 7, 5, 2));
	assert_true(g->blind); /* the same */
	assert_int_equal(0, master_map_add_tomb(m, "d/k", 3, 7, 6, 3));
	assert_ptr_equal(g, master_map_grave(m, "d/k", 3));
	assert_int_equal(0, g->by_run);
	assert_int_equal(0, g->by_ticket);
	assert_false(g->blind);
}

/* A user who chooses names cannot predict their hashes. */
static void graves_are_found_by_a_hash_with_a_seed(void **state)
{
	struct master_map *m = *state;

	assert_int_equal(0, master_map_add_tomb(m, "d/k", 3, 7, 5, 1));
	assert_int_equal((uint32_t)XXH3_64bits_withSeed("d/k", 3,
							pool_hash_seed()),
			 master_map_grave(m, "d/k", 3)->hash.hash);
}

static void older_generations_stay_dead_when_the_newer_one_leaves(void **state)
{
	struct master_map *m = *state;
	struct master_file *f;

	master_map_remove_file(m, put(m, "k"), 3, 1);
	f = put(m, "k"); /* generation 5, over a tombstone */
	master_map_remove_file(m, f, 0, 1);
	assert_int_equal(4, tomb_gen(m, "k", 1));
}

static void tombstones_are_bounded_and_the_oldest_go_first(void **state)
{
	struct master_map *m = *state;
	char name[2] = "a";

	for (; name[0] <= 'f'; name[0]++)
		assert_int_equal(0, master_map_add_tomb(m, name, 1, 7, 9,
						    100u + (unsigned)name[0]));
	assert_int_equal(2, master_map_forget(m, 0, 100));
	assert_int_equal(4, m->ntombs);
	assert_int_equal(0, tomb_gen(m, "b", 1));
	assert_int_equal(9, tomb_gen(m, "c", 1));
	assert_int_equal(100 + 'b', lost_wall(m, 7));
	assert_int_equal(2, m->feed.forgotten);
	/* By time. */
	assert_int_equal(1, master_map_forget(m, 101 + 'c', 100));
	assert_int_equal(2, m->nforgotten - 1);
}

static void add_tombs(struct master_map *m, const char *names, uint32_t uid,
		      uint64_t wall_ns)
{
	for (; *names; names++)
		assert_int_equal(0, master_map_add_tomb(m, names, 1, uid, 9,
							wall_ns++));
}

static void the_owner_with_the_most_tombstones_loses_his_own(void **state)
{
	struct master_map *m = *state;

	add_tombs(m, "a", 1000, 1);
	add_tombs(m, "bcdefghi", 1001, 2);
	assert_int_equal(5, master_map_forget(m, 0, 100));
	assert_int_equal(9, tomb_gen(m, "a", 1));
	assert_int_equal(0, tomb_gen(m, "f", 1));
	assert_int_equal(9, tomb_gen(m, "g", 1));
	assert_int_equal(0, lost_wall(m, 1000));
	assert_int_equal(6, lost_wall(m, 1001));
	assert_int_equal(0, lost_wall(m, 1002));
}

static void root_loses_tombstones_only_beyond_half_of_the_bound(void **state)
{
	struct master_map *m = *state;

	add_tombs(m, "ab", 0, 1);
	add_tombs(m, "c", 1000, 3);
	add_tombs(m, "d", 1001, 4);
	add_tombs(m, "e", 1002, 5);
	assert_int_equal(1, master_map_forget(m, 0, 100));
	assert_int_equal(0, lost_wall(m, 0));
	assert_int_equal(2, m->ntombs - 2); /* of three users */
	add_tombs(m, "fg", 0, 6);
	assert_int_equal(2, master_map_forget(m, 0, 100));
	assert_int_equal(2, lost_wall(m, 0));
}

#define THE_FILES_OWNER 7
#define THE_DIRS_OWNER 8
#define SOMEBODY 9

static void make_dir_of(struct master_map *m, const char *path, uint16_t mode,
			uint32_t gid)
{
	const struct master_attrs a = { .uid = THE_DIRS_OWNER, .gid = gid,
					.mode = mode };
	struct master_dir *d;
	bool made;

	assert_int_equal(0, master_map_make_dir(m, path, strlen(path), &a, &d,
						&made));
}

static void make_dir(struct master_map *m, const char *path, uint16_t mode)
{
	make_dir_of(m, path, mode, 70);
}

/* The account that a deletion by `by` is charged to. When its tombstones are
 * forgotten, the name is lost for that account and for no other. */
static int account_of(struct master_map *m, const char *path, uint32_t by)
{
	const size_t len = strlen(path);
	struct master_account a = master_account_of(
		m, path, len, THE_FILES_OWNER, by);
	struct master_owner *w = master_owners_of(&m->owners, a);
	uint64_t wall_ns, seq;

	master_account_lost(m, path, len, THE_FILES_OWNER, &wall_ns, &seq);
	assert_int_equal(0, wall_ns);
	master_owner_lost(&m->owners, w, 5, 6);
	master_account_lost(m, path, len, THE_FILES_OWNER, &wall_ns, &seq);
	assert_int_equal(5, wall_ns);
	assert_int_equal(6, seq);
	w->lost_wall_ns = w->lost_seq = 0;
	assert_int_equal(a.kind == MASTER_BY_OWNER ? THE_FILES_OWNER :
			 a.kind == MASTER_BY_DIR   ? THE_DIRS_OWNER :
			 a.kind == MASTER_BY_GROUP ? 70 :
						     0,
			 a.id);
	return a.kind;
}

static void a_deletion_is_on_the_account_of_who_may_delete(void **state)
{
	struct master_map *m = *state;

	make_dir(m, "his", 0755);
	make_dir(m, "group", 0775);
	make_dir(m, "all", 0777);
	make_dir(m, "sticky", 01777);
	assert_int_equal(MASTER_BY_OWNER, account_of(m, "all/k", 7));
	assert_int_equal(MASTER_BY_OWNER, account_of(m, "all/k", 0));
	assert_int_equal(MASTER_BY_OWNER,
			 account_of(m, "all/k", MASTER_UID_ANYONE));
	assert_int_equal(MASTER_BY_DIR, account_of(m, "his/k", THE_DIRS_OWNER));
	assert_int_equal(MASTER_BY_DIR, account_of(m, "sticky/k",
						   THE_DIRS_OWNER));
	assert_int_equal(MASTER_BY_GROUP, account_of(m, "group/k", SOMEBODY));
	assert_int_equal(MASTER_BY_ALL, account_of(m, "all/k", SOMEBODY));
}

/* The user may still have the directory open, or have been faster than its
 * chmod. */
static void a_user_who_may_not_delete_is_charged_himself(void **state)
{
	const char *const paths[] = { "his/k", "sticky/k", "k", "no/k",
				      "readable/k", "group/his/all/k" };
	const struct master_account own = master_account_of_owner(SOMEBODY);
	struct master_map *m = *state;
	size_t i;

	make_dir(m, "his", 0755);
	make_dir(m, "sticky", 01777);
	make_dir(m, "readable", 0746);
	make_dir(m, "group", 0770);
	make_dir(m, "group/his", 0700);
	make_dir(m, "group/his/all", 0777);
	for (i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
		assert_true(master_account_same(
			own, master_account_of(m, paths[i], strlen(paths[i]),
					       THE_FILES_OWNER, SOMEBODY)));
}

/* Deletions by others in other directories do not count against this one's
 * account. */
static void a_user_without_search_permission_deletes_nothing_there(
	void **state)
{
	const struct master_account all = { 0, MASTER_BY_ALL };
	struct master_map *m = *state;
	uint64_t wall_ns, seq;

	make_dir(m, "group", 0770);
	make_dir(m, "group/all", 0777);
	make_dir(m, "group/his", 0700);
	make_dir(m, "group/his/all", 0777);
	assert_int_equal(MASTER_BY_GROUP,
			 account_of(m, "group/all/k", SOMEBODY));
	master_owner_lost(&m->owners, master_owners_of(&m->owners, all), 5, 6);
	master_account_lost(m, "group/all/k", 11, THE_FILES_OWNER, &wall_ns,
			    &seq);
	assert_int_equal(0, wall_ns);
	master_account_lost(m, "group/his/all/k", 15, THE_FILES_OWNER, &wall_ns,
			    &seq);
	assert_int_equal(0, wall_ns);
}

static struct master_account of_somebody(struct master_map *m,
					 const char *path)
{
	return master_account_of(m, path, strlen(path), THE_FILES_OWNER,
				 SOMEBODY);
}

/* A member of only one of the groups cannot delete there. */
static void a_deletion_that_needs_two_groups_is_charged_to_both(void **state)
{
	struct master_map *m = *state;
	struct master_account a, one = { 70, MASTER_BY_GROUP },
				 other = { 80, MASTER_BY_GROUP };
	uint64_t wall_ns, seq;

	make_dir_of(m, "one", 0775, 70);
	make_dir_of(m, "a", 0750, 80);
	make_dir_of(m, "a/b", 0770, 70);
	make_dir_of(m, "a/b/c", 0770, 80);
	make_dir_of(m, "b", 0750, 70);
	make_dir_of(m, "b/a", 0770, 80);
	make_dir_of(m, "c", 0750, 90);
	make_dir_of(m, "c/b", 0770, 70);
	assert_true(master_account_same(one, of_somebody(m, "one/k")));
	a = of_somebody(m, "a/b/k");
	assert_int_equal(MASTER_BY_GROUPS, a.kind);
	assert_true(master_account_same(a, of_somebody(m, "a/b/c/k")));
	assert_true(master_account_same(a, of_somebody(m, "b/a/k")));
	assert_false(master_account_same(a, of_somebody(m, "c/b/k")));
	master_owner_lost(&m->owners, master_owners_of(&m->owners, one), 5, 6);
	master_owner_lost(&m->owners, master_owners_of(&m->owners, other), 5,
			  6);
	master_account_lost(m, "a/b/k", 5, THE_FILES_OWNER, &wall_ns, &seq);
	assert_int_equal(0, wall_ns);
	master_owner_lost(&m->owners, master_owners_of(&m->owners, a), 7, 8);
	master_account_lost(m, "b/a/k", 5, THE_FILES_OWNER, &wall_ns, &seq);
	assert_int_equal(7, wall_ns);
	master_account_lost(m, "c/b/k", 5, THE_FILES_OWNER, &wall_ns, &seq);
	assert_int_equal(0, wall_ns);
}

/* Nor does a file of the user's own that replaces the deleted one's
 * tombstone. */
static void what_others_delete_costs_the_owner_nothing_elsewhere(void **state)
{
	const struct master_attrs mine = { .uid = THE_DIRS_OWNER };
	struct master_map *m = *state;
	char path[] = "his/a";
	struct master_file *f;
	uint64_t wall_ns, seq;
	bool made;

	make_dir(m, "his", 0755);
	for (; path[4] < 'i'; path[4]++) {
		master_map_remove_file(m, put(m, path), 6, 10);
		master_map_charge(m, master_map_grave(m, path, 5),
				  master_account_of(m, path, 5, 7,
							THE_DIRS_OWNER));
		assert_int_equal(0, master_map_make_file(m, path, 5, &mine, &f,
							 &made));
		f->gen = 7;
		master_map_touch_file(m, f);
	}
	assert_int_equal(8, m->formers.count);
	assert_true(master_map_forget(m, 0, 100) > 0);
	assert_int_equal(0, lost_wall(m, 7));
	master_account_lost(m, "k", 1, 7, &wall_ns, &seq);
	assert_int_equal(0, wall_ns);
	master_account_lost(m, "his/k", 5, 7, &wall_ns, &seq);
	assert_int_equal(10, wall_ns);
}

/* An account without tombstones is freed, so that their number is bounded. */
static void an_account_without_tombstones_ends(void **state)
{
	struct master_map *m = *state;
	const struct pool_hash *accounts = &m->owners.by_account;

	master_map_remove_file(m, put(m, "k"), 6, 10);
	assert_int_equal(1, accounts->count);
	put(m, "k");
	assert_int_equal(0, accounts->count);
	/* An account some of whose tombstones were forgotten is kept. */
	master_map_remove_file(m, put(m, "l"), 6, 10);
	assert_int_equal(1, master_map_forget(m, 20, 10));
	assert_int_equal(1, accounts->count);
	assert_int_equal(10, lost_wall(m, 7));
}

/* In a directory like /tmp everybody may do this: it deletes nothing of the
 * owner. */
static void creating_an_evicted_name_charges_nothing_to_its_owner(
	void **state)
{
	const struct master_attrs mine = { .uid = SOMEBODY };
	struct master_map *m = *state;
	struct master_file *f;
	bool made;

	assert_int_equal(0, master_map_remove_file(m, put(m, "k"), 0, 10));
	assert_int_equal(0, master_map_remove_file(m, put(m, "l"), 0, 10));
	assert_int_equal(0, master_map_make_file(m, "k", 1, &mine, &f, &made));
	master_map_touch_file(m, f);
	assert_int_equal(0, master_map_add_tomb(m, "l", 1, SOMEBODY, 9, 20));
	assert_int_equal(0, master_owners_of(&m->owners,
					     master_account_of_owner(7))->n);
	assert_int_equal(1, m->ntombs); /* his own, of l */
}

/* Any file of an absent node may belong to an owner beyond the bound. */
static void a_tombstone_without_owner_counts_for_all(void **state)
{
	struct master_map *m = *state;

	add_tombs(m, "abcdef", MASTER_UID_ANYONE, 1);
	assert_int_equal(2, master_map_forget(m, 0, 100));
	assert_int_equal(2, lost_wall(m, 1000));
}

/* The question that the inventory of a returning node raises. */
static bool is_dead(struct master_map *m, const char *path, uint32_t uid,
		    uint64_t gen)
{
	return tomb_gen(m, path, strlen(path)) >= gen ||
	       master_map_former_dead(m, path, strlen(path), uid, gen);
}

/* Forgets the second owner's tombstone of k, and keeps the first one's. */
static void forget_that_of(struct master_map *m, uint32_t uid)
{
	add_tombs(m, "uvwxyz", uid, 50);
	while (master_map_forget(m, 0, 1))
		;
	assert_true(lost_wall(m, uid) >= 10);
	assert_int_equal(0, lost_wall(m, 7));
}

static void a_directory_made_over_a_name_does_not_renew_its_deletion(
	void **state)
{
	struct master_map *m = *state;
	struct master_dir *d;
	bool made;

	master_map_remove_file(m, put(m, "k"), 6, 10);
	assert_int_equal(0, master_map_make_dir(m, "k", 1, &attrs, &d, &made));
	assert_int_equal(0, master_map_remove_dir(m, d, 500));
	assert_int_equal(10, master_map_grave(m, "k", 1)->wall_ns);
}

static void tombstones_without_owner_are_forgotten_last(void **state)
{
	struct master_map *m = *state;

	add_tombs(m, "abcdef", MASTER_UID_ANYONE, 1);
	add_tombs(m, "gh", 1000, 10);
	assert_int_equal(2, master_map_forget(m, 0, 2));
	assert_int_equal(0, lost_wall(m, 1001));
}

static void a_name_made_again_by_another_stays_dead_for_its_first_owner(
	void **state)
{
	struct master_map *m = *state;
	struct master_file *f;

	master_map_remove_file(m, put(m, "k"), 6, 10); /* of uid 7 */
	f = put(m, "k");
	f->uid = 8; /* as if uid 8 had created it */
	assert_int_equal(0, m->formers.count);
	master_map_remove_file(m, f, 6, 10);
	assert_int_equal(0, master_map_add_tomb(m, "k", 1, 7, 5, 10));
	assert_int_equal(1, m->formers.count);
	forget_that_of(m, 8);
	assert_true(is_dead(m, "k", 7, 5));
	assert_false(is_dead(m, "k", 7, 6));
	assert_false(is_dead(m, "k", 8, 5));
}

/* A tombstone from the state of an older version, without an owner. */
static void a_tombstone_without_owner_holds_for_all(void **state)
{
	struct master_map *m = *state;

	master_map_add_former(
		m, "k", 1, MASTER_UID_ANYONE,
		master_account_of_owner(MASTER_UID_ANYONE), 5, false, 10);
	assert_true(is_dead(m, "k", 7, 5));
	assert_false(is_dead(m, "k", 7, 6));
}

static void a_deletion_is_one_for_former_owners_too(void **state)
{
	struct master_map *m = *state;
	struct master_file *f = put(m, "k");
	struct master_grave *g;

	f->uid = 8; /* chown */
	g = master_map_disown(m, f, 7, 1);
	assert_int_equal(4, g->gen);
	assert_null(master_map_disown(m, f, 7, 1));
	assert_null(master_map_disown(m, f, 8, 1));
	master_map_touch_file(m, f);
	assert_false(is_dead(m, "k", 7, 5));
	master_map_remove_file(m, f, 6, 10);
	assert_true(is_dead(m, "k", 7, 5));
	forget_that_of(m, 8);
	assert_true(is_dead(m, "k", 7, 5));
	assert_false(is_dead(m, "k", 8, 5));
}

static void over_a_tombstone_another_owner_leaves_the_first_one_his(
	void **state)
{
	struct master_attrs others = attrs;
	struct master_map *m = *state;
	struct master_file *f;
	bool made;

	others.uid = 8;
	master_map_remove_file(m, put(m, "k"), 6, 10);
	assert_int_equal(0,
			 master_map_make_file(m, "k", 1, &others, &f, &made));
	assert_int_equal(1, m->formers.count);
	f->gen = 7;
	master_map_touch_file(m, f);
	assert_true(is_dead(m, "k", 7, 6));
	master_map_remove_file(m, f, 8, 20);
	forget_that_of(m, 8);
	assert_true(is_dead(m, "k", 7, 6));
	/* The second deletion changes neither generation nor time of the first
	 * owner's tombstone. */
	assert_false(is_dead(m, "k", 7, 7));
	assert_int_equal(10, master_map_former(m, "k", 1, 7)->wall_ns);
	/* Tombstones older than the limit are all forgotten. */
	while (master_map_forget(m, 1000, 1))
		;
	assert_int_equal(0, m->formers.count);
}

/* A path of `ndirs` directories and a name, each of 255 bytes. */
static size_t long_path(char *path, unsigned int ndirs, char first)
{
	memset(path, first, ndirs * 256u + 1);
	for (unsigned int i = 1; i <= ndirs; i++)
		path[i * 256 - 1] = '/';
	path[ndirs * 256 + 1] = '\0';
	return ndirs * 256 + 1;
}

static void graves_are_bounded_by_their_bytes_too(void **state)
{
	struct master_map *m = *state;
	char path[POOL_PATH_MAX + 1];
	size_t len = 0;

	/* 2048 bytes hold one of these 4 tombstones of more than 1 KiB. */
	for (char name = 'a'; name <= 'd'; name++) {
		len = long_path(path, 4, name);
		assert_int_equal(0, master_map_add_tomb(m, path, len, 7, 9, 1));
	}
	assert_int_equal(1, master_map_forget(m, 0, 1));
	assert_int_equal(2, master_map_forget(m, 0, 100));
	assert_int_equal(1, m->ntombs);
	assert_int_equal(9, tomb_gen(m, path, len));
	assert_int_equal(sizeof(struct master_grave) + len, m->tomb_bytes);
	assert_int_equal(3, m->nforgotten);
	/* Creating the name again frees its tombstone's bytes. */
	put(m, path);
	assert_int_equal(0, m->tomb_bytes);
	/* Ghosts have a limit of their own. */
	for (char name = 'e'; name <= 'f'; name++) {
		len = long_path(path, 4, name);
		assert_int_equal(0, master_map_remove_file(m, put(m, path), 0,
							   1));
	}
	assert_int_equal(1, master_map_forget(m, 0, 100));
	assert_non_null(master_map_grave(m, path, len));
	assert_int_equal(sizeof(struct master_grave) + len, m->ghost_bytes);
	/* A ghost that becomes a tombstone moves its bytes to that limit. */
	assert_int_equal(0, master_map_add_tomb(m, path, len, 7, 9, 1));
	assert_int_equal(0, m->ghost_bytes);
	assert_int_equal(sizeof(struct master_grave) + len, m->tomb_bytes);
	master_map_check(m);
}

static void holders_beyond_the_inline_ones_are_kept(void **state)
{
	struct master_map *m = *state;
	struct master_file *f = put(m, "k");
	unsigned int i;

	for (i = 0; i < MASTER_HOLDERS_MAX; i++)
		assert_int_equal(1, master_file_add_holder(
					    m, f, master_holder_make(i, 3)));
	assert_int_equal(-ENOSPC, master_file_add_holder(
					  m, f, master_holder_make(999, 3)));
	assert_int_equal(1, m->holders_full);
	assert_int_equal(0, master_file_add_holder(m, f,
						   master_holder_make(17, 4)));
	i = (unsigned int)master_file_find_holder(f, 17);
	assert_int_equal(4, master_holder_phase(master_file_holders(f)[i]));
	while (f->nholders)
		master_file_remove_holder(f, 0);
	assert_int_equal(0, f->holders_cap);
	assert_int_equal(-1, master_file_find_holder(f, 17));
}

static void the_nearest_rule_wins(void **state)
{
	struct master_map *m = *state;
	struct master_file *f = put(m, "a/b/k");
	struct pool_rules r = { .replicas = 3, .pin = POOL_PIN_HARD }, got;

	master_file_rules(f, 0, &got);
	assert_int_equal(1, got.replicas);
	assert_int_equal(POOL_CLASS_SHARED, got.class);
	assert_int_equal(0, master_extra_set(&master_map_dir(m, "a", 1)->extra,
					     NULL, &r));
	r = (struct pool_rules){ .replicas = 2 };
	assert_int_equal(0, master_extra_set(
				    &master_map_dir(m, "a/b", 3)->extra, NULL,
				    &r));
	master_file_rules(f, 0, &got);
	assert_int_equal(2, got.replicas);
	assert_int_equal(POOL_PIN_HARD, got.pin);
	r = (struct pool_rules){ .pin = POOL_PIN_SOFT, .pin_until_ns = 50 };
	assert_int_equal(0, master_extra_set(&f->extra, NULL, &r));
	master_file_rules(f, 49, &got);
	assert_int_equal(POOL_PIN_SOFT, got.pin);
	master_file_rules(f, 50, &got);
	assert_int_equal(POOL_PIN_NONE, got.pin);
}

/* ---- members: which holders stand ---- */

static Kvpool__NodeInfo info = KVPOOL__NODE_INFO__INIT;

static void a_holder_stands_until_its_node_is_gone_or_lists_it_no_more(
	void **state)
{
	static struct master_members ms;
	struct master_session *session = (void *)&ms;
	struct master_member *mb;
	uint8_t id[POOL_ID_SIZE] = { 1 };
	master_holder h;

	(void)state;
	info.id.data = id;
	info.id.len = sizeof(id);
	master_members_init(&ms);
	assert_int_equal(0, master_members_make(&ms, id, &mb));
	assert_int_equal(0, master_member_join(&ms, mb, session, 1));
	h = master_holder_make(mb->index, mb->phase);
	mb->inventoried = true;
	assert_true(master_holder_stands(&ms, h));
	master_member_away(&ms, mb, 2);
	assert_true(master_holder_stands(&ms, h));
	/* Back, and its inventory is not complete: its copies still count. */
	assert_int_equal(0, master_member_join(&ms, mb, session, 3));
	assert_true(master_holder_stands(&ms, h));
	mb->inventoried = true;
	assert_false(master_holder_stands(&ms, h));
	h = master_holder_make(mb->index, mb->phase);
	assert_true(master_holder_stands(&ms, h));
	master_member_gone(&ms, mb, 4);
	assert_false(master_holder_stands(&ms, h));
	master_members_fini(&ms);
}

static void a_node_that_joins_faster_than_the_patrol_walks_is_put_off(
	void **state)
{
	static struct master_members ms;
	struct master_session *session = (void *)&ms;
	struct master_member *mb;
	uint8_t id[POOL_ID_SIZE] = { 1 };
	int i;

	(void)state;
	master_members_init(&ms);
	assert_int_equal(0, master_members_make(&ms, id, &mb));
	for (i = 0; i < 15; i++)
		assert_int_equal(0, master_member_join(&ms, mb, session, 1));
	assert_int_equal(-EAGAIN, master_member_join(&ms, mb, session, 1));
	mb->inventoried = true;
	master_members_sweep_begin(&ms);
	master_members_sweep_end(&ms);
	assert_int_equal(0, master_member_join(&ms, mb, session, 1));
	master_members_fini(&ms);
}

static void figures_are_sent_in_rounds_if_there_are_many_mounts(void **state)
{
	Kvpool__NodeInfo says = KVPOOL__NODE_INFO__INIT;
	struct master_members ms;
	struct master_member *mb;
	uint64_t before;

	(void)state;
	master_members_init(&ms);
	assert_int_equal(0, master_members_make(
				    &ms, (uint8_t *)"0123456789abcdef", &mb));
	before = ms.changes;
	says.capacity = 100;
	says.used = 1;
	master_member_figures(&ms, mb, &says);
	assert_int_equal(before + 1, ms.changes);
	/* With 5000 mounts, members are sent every 5 ms at most. */
	master_members_round(&ms, 5000, 100);
	says.used = 2;
	master_member_figures(&ms, mb, &says);
	says.used = 3;
	master_member_figures(&ms, mb, &says);
	master_members_round(&ms, 5000, 104);
	assert_int_equal(before + 1, ms.changes);
	assert_int_equal(3, mb->used);
	master_members_round(&ms, 5000, 105);
	assert_int_equal(before + 2, ms.changes);
	assert_int_equal(ms.changes, mb->changed);
	/* A change of state is sent at once, together with new figures. */
	says.used = 4;
	master_member_figures(&ms, mb, &says);
	master_member_away(&ms, mb, 106);
	master_members_round(&ms, 1, 110);
	assert_int_equal(before + 3, ms.changes);
	master_members_fini(&ms);
}

static void a_map_can_be_freed_in_pieces(void **state)
{
	unsigned int i, pieces = 1;
	struct master_map m;
	char path[32];

	(void)state;
	assert_int_equal(0, master_map_init(&m, 100, 100));
	for (i = 0; i < 60; i++) {
		snprintf(path, sizeof(path), "d%u/e/k%u", i / 10, i);
		put(&m, path);
	}
	for (i = 0; i < 20; i++) { /* half of them leave tombstones */
		snprintf(path, sizeof(path), "d%u/e/k%u", i / 10, i);
		assert_int_equal(0, master_map_remove_file(
					    &m, master_map_file(&m, path,
								strlen(path)),
					    i % 2, i));
	}
	/* 20 graves, 40 files, 12 directories and the root. */
	while (master_map_fini_some(&m, 5))
		pieces++;
	assert_in_range(pieces, 73 / 5, 73 / 5 + 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_file_brings_its_directories),
		T(a_path_through_a_file_or_over_a_directory_is_refused),
		T(a_directory_with_names_below_stays),
		T(a_tombstone_holds_until_the_name_is_back),
		T(a_name_that_merely_left_may_come_back),
		T(a_tombstone_outlives_a_directory_of_the_name),
		T(what_was_evicted_may_have_become_a_directory),
		T(what_is_buried_again_is_sent_again_only_if_it_changes),
		T(what_is_buried_again_has_nothing_of_its_first_burial),
		T(graves_are_found_by_a_hash_with_a_seed),
		T(older_generations_stay_dead_when_the_newer_one_leaves),
		T(tombstones_are_bounded_and_the_oldest_go_first),
		T(the_owner_with_the_most_tombstones_loses_his_own),
		T(a_deletion_is_on_the_account_of_who_may_delete),
		T(a_user_who_may_not_delete_is_charged_himself),
		T(a_user_without_search_permission_deletes_nothing_there),
		T(a_deletion_that_needs_two_groups_is_charged_to_both),
		T(what_others_delete_costs_the_owner_nothing_elsewhere),
		T(root_loses_tombstones_only_beyond_half_of_the_bound),
		T(creating_an_evicted_name_charges_nothing_to_its_owner),
		T(an_account_without_tombstones_ends),
		T(a_tombstone_without_owner_counts_for_all),
		T(a_name_made_again_by_another_stays_dead_for_its_first_owner),
		T(a_tombstone_without_owner_holds_for_all),
		T(a_deletion_is_one_for_former_owners_too),
		T(over_a_tombstone_another_owner_leaves_the_first_one_his),
		T(a_directory_made_over_a_name_does_not_renew_its_deletion),
		T(tombstones_without_owner_are_forgotten_last),
		T(graves_are_bounded_by_their_bytes_too),
		T(holders_beyond_the_inline_ones_are_kept),
		T(the_nearest_rule_wins),
		T(a_holder_stands_until_its_node_is_gone_or_lists_it_no_more),
		T(a_node_that_joins_faster_than_the_patrol_walks_is_put_off),
		T(figures_are_sent_in_rounds_if_there_are_many_mounts),
		T(a_map_can_be_freed_in_pieces),
	};

	alarm(30);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
