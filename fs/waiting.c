/* Starts the timer that continues listings (fs_listings_run, dir_ops.c) and
 * retries waiting OPENs (fs_waiting_run, open.c). This is a file of its own,
 * because stale.c, which lies below open.c, starts the timer, too. */
#include "fs/fs_priv.h"

void fs_waiting_schedule(struct fs *fs)
{
	if (!uv_is_active((uv_handle_t *)&fs->waiting_timer))
		uv_timer_start(&fs->waiting_timer, fs->on_waiting,
			       FS_WAITING_MS, FS_WAITING_MS);
}
