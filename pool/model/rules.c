#include "pool/model/rules.h"

#include <errno.h>
#include <string.h>

#include "pool/base/parse.h"

#define VALUE_MAX 31 /* bytes of the longest value worth parsing */
#define NS_PER_MS 1000000u
#define NS_PER_S 1000000000u

/* One rule: set applies a non-empty value, clear unsets. */
struct rule {
	const char *name;
	const char *accepted;
	bool dir_only;
	int (*set)(struct pool_rules *r, const char *value, uint64_t now);
	void (*clear)(struct pool_rules *r);
};

/* ---- rules that are one word of several ---- */

static const char *const class_words[] = {
	[POOL_CLASS_SHARED] = "shared",
	[POOL_CLASS_NOEVICT] = "noevict",
	[POOL_CLASS_SCRATCH] = "scratch",
	NULL,
};
static const char *const pin_words[] = {
	[POOL_PIN_NONE] = "none",
	[POOL_PIN_SOFT] = "soft",
	[POOL_PIN_HARD] = "hard",
	NULL,
};
static const char *const unlink_words[] = {
	[POOL_UNLINK_POOL] = "pool",
	[POOL_UNLINK_NODE] = "node",
	NULL,
};

/* Index 0 is "unset" and has no word. */
static int set_word(uint8_t *field, const char *const *words,
		    const char *value)
{
	for (uint8_t i = 1; words[i]; i++) {
		if (!strcmp(words[i], value)) {
			*field = i;
			return 0;
		}
	}
	return -EINVAL;
}

/* ---- class ---- */

static int class_set(struct pool_rules *r, const char *value, uint64_t now)
{
	(void)now;
	return set_word(&r->class, class_words, value);
}

static void class_clear(struct pool_rules *r)
{
	r->class = POOL_CLASS_UNSET;
}

/* ---- replicas ---- */

static int replicas_set(struct pool_rules *r, const char *value, uint64_t now)
{
	uint64_t n;

	(void)now;
	if (pool_parse_u64(value, 1, POOL_REPLICAS_MAX, &n))
		return -EINVAL;
	r->replicas = (uint8_t)n;
	return 0;
}

static void replicas_clear(struct pool_rules *r)
{
	r->replicas = 0;
}

/* ---- pin ---- */

static int pin_set_until(struct pool_rules *r, const char *duration,
			 uint64_t now)
{
	uint64_t ms, ns;

	if (pool_parse_duration_ms(duration, &ms) ||
	    __builtin_mul_overflow(ms, (uint64_t)NS_PER_MS, &ns) ||
	    __builtin_add_overflow(ns, now, &ns))
		return -EINVAL;
	r->pin = POOL_PIN_SOFT;
	r->pin_until_ns = ns ? ns : 1; /* 0 would be "no end" */
	return 0;
}

/* The form to store: it does not depend on when it is read. */
static int pin_set_end(struct pool_rules *r, const char *seconds)
{
	uint64_t s;

	if (pool_parse_u64(seconds, 1, UINT64_MAX / NS_PER_S, &s))
		return -EINVAL;
	r->pin = POOL_PIN_SOFT;
	r->pin_until_ns = s * NS_PER_S;
	return 0;
}

static int pin_set(struct pool_rules *r, const char *value, uint64_t now)
{
	int err;

	if (!strncmp(value, "soft:", 5))
		return pin_set_until(r, value + 5, now);
	if (!strncmp(value, "soft@", 5))
		return pin_set_end(r, value + 5);
	err = set_word(&r->pin, pin_words, value);
	if (!err)
		r->pin_until_ns = 0;
	return err;
}

static void pin_clear(struct pool_rules *r)
{
	r->pin = POOL_PIN_UNSET;
	r->pin_until_ns = 0;
}

/* ---- unlink ---- */

static int unlink_set(struct pool_rules *r, const char *value, uint64_t now)
{
	(void)now;
	return set_word(&r->unlink, unlink_words, value);
}

static void unlink_clear(struct pool_rules *r)
{
	r->unlink = POOL_UNLINK_UNSET;
}

/* ---- all of them ---- */

static const struct rule rules[] = {
	{ POOL_XATTR_PREFIX "class",
	  "shared, noevict, scratch (on directories)", true, class_set,
	  class_clear },
	{ POOL_XATTR_PREFIX "pin", "none, soft, soft:<duration>, hard", false,
	  pin_set, pin_clear },
	{ POOL_XATTR_PREFIX "replicas", "1..8", false, replicas_set,
	  replicas_clear },
	{ POOL_XATTR_PREFIX "unlink", "pool, node", false, unlink_set,
	  unlink_clear },
};
_Static_assert(POOL_REPLICAS_MAX == 8, "the text above says 1..8");

static const struct rule *rule_find(const char *name)
{
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
		if (!strcmp(name, rules[i].name))
			return &rules[i];
	return NULL;
}

static int rule_set(const struct rule *rule, struct pool_rules *r,
		    const void *value, size_t len, bool is_dir, uint64_t now)
{
	char text[VALUE_MAX + 1];

	if (len == 0) {
		rule->clear(r);
		return 0;
	}
	if (len > VALUE_MAX || memchr(value, 0, len) ||
	    (rule->dir_only && !is_dir))
		return -EINVAL;
	memcpy(text, value, len);
	text[len] = 0;
	return rule->set(r, text, now);
}

int pool_rules_set(struct pool_rules *r, const char *name, const void *value,
		   size_t len, bool is_dir, uint64_t now_wall_ns,
		   const char **ret_accepted)
{
	const struct rule *rule = rule_find(name);
	int err;

	if (!rule)
		return -ENOTSUP;
	err = rule_set(rule, r, value, len, is_dir, now_wall_ns);
	if (err && ret_accepted)
		*ret_accepted = rule->accepted;
	return err;
}

void pool_rules_inherit(struct pool_rules *r, const struct pool_rules *parent)
{
	if (!r->class)
		r->class = parent->class;
	if (!r->pin) {
		r->pin = parent->pin;
		r->pin_until_ns = parent->pin_until_ns;
	}
	if (!r->unlink)
		r->unlink = parent->unlink;
	if (!r->replicas)
		r->replicas = parent->replicas;
}

void pool_rules_default(struct pool_rules *r)
{
	static const struct pool_rules defaults = {
		.class = POOL_CLASS_SHARED,
		.pin = POOL_PIN_NONE,
		.unlink = POOL_UNLINK_POOL,
		.replicas = 1,
	};

	pool_rules_inherit(r, &defaults);
}

bool pool_rules_empty(const struct pool_rules *r)
{
	return !r->class && !r->pin && !r->unlink && !r->replicas;
}
