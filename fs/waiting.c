/* Opens that wait look again in a moment: what runs then is open.c's, by
 * pointer. */
#include "fs/fs_priv.h"

void fs_waiting_schedule(struct fs *fs)
{
	if (!uv_is_active((uv_handle_t *)&fs->retry))
		uv_timer_start(&fs->retry, fs->on_retry, FS_RETRY_MS,
			       FS_RETRY_MS);
}
