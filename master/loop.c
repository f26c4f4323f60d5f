/*
 * Wake-ups of the master's loop for all files: a kick runs the pump soon,
 * slices continue walks over the map. The callbacks are server.c's (m->on_pump,
 * m->on_slices).
 */
#include "master/impl.h"

void master_kick(struct master *m)
{
	if (m->pump_armed || m->closing)
		return;
	m->pump_armed = true;
	uv_timer_start(&m->pump, m->on_pump, MASTER_COALESCE_MS, 0);
}

void master_slices_start(struct master *m)
{
	if (!m->closing)
		uv_idle_start(&m->slices, m->on_slices);
}

void master_handle_gone(struct master *m)
{
	if (--m->nhandles == 0)
		m->on_handles_gone(m);
}
