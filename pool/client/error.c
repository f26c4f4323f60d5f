/* The text of each thread's last error (kvpool_last_error). */
#include "pool/client/client_priv.h"

#include <stdarg.h>
#include <stdio.h>

static __thread char last_error[512];

int client_fail(int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(last_error, sizeof(last_error), fmt, ap);
	va_end(ap);
	return err;
}

const char *kvpool_last_error(void)
{
	return last_error;
}
