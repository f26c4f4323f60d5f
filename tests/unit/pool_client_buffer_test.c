/* libkvpool's buffer in a filesystem that other programs use, too. */
#include "pool/client/client_priv.h"
#include "pool/store/store_priv.h"
#include "tests/unit/client_pool.h"

#define BUFFER (24ull << 20)
#define SLACK (4ull << 20)

static uint64_t bytes_in_buffer(struct fixture *f)
{
	char path[160];
	struct dirent *e;
	struct stat st;
	uint64_t sum = 0;
	DIR *d;

	snprintf(path, sizeof(path), "%s/0/store", f->buffer_dir);
	d = opendir(path);
	assert_non_null(d);
	while ((e = readdir(d)))
		if (strlen(e->d_name) == 16 &&
		    fstatat(dirfd(d), e->d_name, &st, 0) == 0)
			sum += (uint64_t)st.st_blocks * 512;
	closedir(d);
	return sum;
}

static void put_some(struct fixture *f, const char *form, unsigned int n)
{
	char key[32];

	for (unsigned int i = 0; i < n; i++) {
		snprintf(key, sizeof(key), "%s%u", form, i);
		fill(f->mem, 1 << 20, i);
		assert_int_equal(kvpool_put_from(f->ns, key, strlen(key),
						 f->mem, 1 << 20, 0), 0);
	}
	assert_int_equal(kvpool_sync(f->pool), 0);
}

/* Space that another program frees is not available to the buffer. */
static void it_keeps_to_its_size_when_a_neighbour_goes(void **state)
{
	struct fixture *f = *state;
	char neighbour[64];
	int fd;

	snprintf(neighbour, sizeof(neighbour), "%s/neighbour", top);
	fd = open(neighbour, O_CREAT | O_RDWR, 0600);
	assert_int_equal(fallocate(fd, 0, 0, 200 << 20), 0);
	close(fd);
	put_some(f, "first", 20);
	put_some(f, "second", 4);
	assert_int_equal(unlink(neighbour), 0);
	put_some(f, "third", 30);
	assert_true(bytes_in_buffer(f) <= BUFFER + SLACK);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(it_keeps_to_its_size_when_a_neighbour_goes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
