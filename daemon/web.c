/* The files of daemon/web/; the Makefile turns each into bytes. */
#include "daemon/web.h"

static const unsigned char index_html[] = {
#include "web/index.html.h"
};

static const unsigned char app_css[] = {
#include "web/app.css.h"
};

static const unsigned char app_js[] = {
#include "web/app.js.h"
};

const struct daemon_admin_file daemon_web_files[] = {
	{ "/", "text/html; charset=utf-8", index_html, sizeof(index_html) },
	{ "/app.css", "text/css; charset=utf-8", app_css, sizeof(app_css) },
	{ "/app.js", "text/javascript; charset=utf-8", app_js, sizeof(app_js) },
	{ .path = NULL },
};
