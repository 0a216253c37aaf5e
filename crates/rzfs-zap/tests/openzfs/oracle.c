/*
 * Makes changes to a ZAP with OpenZFS's library (libzpool) and writes down its blocks.
 *
 *     oracle SCRIPT BLOCKS IMAGE
 *
 * IMAGE is a file that becomes a pool with one ZAP. The first line of SCRIPT makes the ZAP:
 *     C NORMFLAGS FLAGS LOG2_OF_BLOCK_SIZE       (the last two 0: a microzap)
 * The others change it. Values are COUNT integers of SIZE bytes: FIRST, FIRST + 1, ...
 *     a SIZE COUNT FIRST NAME     add            A SIZE COUNT FIRST N WORD...   the same with
 *     u SIZE COUNT FIRST NAME     update         U ...                          an array of N
 *     r 0 0 0 NAME                remove         R ...                          words as the key
 *     i DELTA NAME                increment
 * For each, the letter and the errno are printed. BLOCKS gets the block size (32 bits), then all
 * blocks. The library notes the pool in /etc/zfs/zpool.cache: remove it afterwards, or run this
 * in a mount namespace.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct objset objset_t;
typedef struct dmu_tx dmu_tx_t;
typedef struct nvlist nvlist_t;

int nvlist_alloc(nvlist_t **, unsigned, int);
int nvlist_add_string(nvlist_t *, const char *, const char *);
int nvlist_add_uint64(nvlist_t *, const char *, uint64_t);
int nvlist_add_nvlist_array(nvlist_t *, const char *, const nvlist_t *const *, unsigned);
void kernel_init(int);
int spa_create(const char *, nvlist_t *, nvlist_t *, nvlist_t *, void *);
int dmu_objset_create(const char *, int, uint64_t, void *, void *, void *);
int dmu_objset_own(const char *, int, int, int, const void *, objset_t **);
void *dmu_objset_pool(objset_t *);
void txg_wait_synced(void *, uint64_t);
dmu_tx_t *dmu_tx_create(objset_t *);
void dmu_tx_hold_zap(dmu_tx_t *, uint64_t, int, const char *);
int dmu_tx_assign(dmu_tx_t *, uint64_t);
void dmu_tx_commit(dmu_tx_t *);
int dmu_object_info(objset_t *, uint64_t, void *);
int dmu_read(objset_t *, uint64_t, uint64_t, uint64_t, void *, uint32_t);
uint64_t zap_create_norm(objset_t *, int, int, int, int, dmu_tx_t *);
uint64_t zap_create_flags(objset_t *, int, int, int, int, int, int, int, dmu_tx_t *);
int zap_add(objset_t *, uint64_t, const char *, int, uint64_t, const void *, dmu_tx_t *);
int zap_update(objset_t *, uint64_t, const char *, int, uint64_t, const void *, dmu_tx_t *);
int zap_remove(objset_t *, uint64_t, const char *, dmu_tx_t *);
int zap_increment(objset_t *, uint64_t, const char *, int64_t, dmu_tx_t *);
int zap_add_uint64(objset_t *, uint64_t, const uint64_t *, int, int, uint64_t, const void *,
    dmu_tx_t *);
int zap_update_uint64(objset_t *, uint64_t, const uint64_t *, int, int, uint64_t, const void *,
    dmu_tx_t *);
int zap_remove_uint64(objset_t *, uint64_t, const uint64_t *, int, dmu_tx_t *);

#define POOL_READ_WRITE 3
#define OBJSET_OTHER 4
#define ZAP_METADATA 0xc4
#define NEW_OBJECT UINT64_MAX
#define CHANGES_A_TX 20

static objset_t *objset;
static unsigned char value[9000];

static void
check(const char *what, int error)
{
	if (error != 0) {
		fprintf(stderr, "%s: %s\n", what, strerror(error));
		exit(1);
	}
}

static dmu_tx_t *
begin(uint64_t object)
{
	dmu_tx_t *tx = dmu_tx_create(objset);
	dmu_tx_hold_zap(tx, object, 1, NULL);
	check("dmu_tx_assign", dmu_tx_assign(tx, 1));
	return (tx);
}

static void
make_pool(const char *image)
{
	char name[64], dataset[80];
	nvlist_t *root, *disk;
	FILE *file = fopen(image, "w");

	check("image", file == NULL || ftruncate(fileno(file), 1 << 30) != 0);
	fclose(file);
	kernel_init(POOL_READ_WRITE);
	nvlist_alloc(&disk, 1, 0);
	nvlist_add_string(disk, "type", "file");
	nvlist_add_string(disk, "path", image);
	nvlist_alloc(&root, 1, 0);
	nvlist_add_string(root, "type", "root");
	const nvlist_t *children[] = { disk };
	nvlist_add_nvlist_array(root, "children", children, 1);
	snprintf(name, sizeof (name), "oracle%d", (int)getpid());
	check("spa_create", spa_create(name, root, NULL, NULL, NULL));
	snprintf(dataset, sizeof (dataset), "%s/data", name);
	check("dmu_objset_create", dmu_objset_create(dataset, OBJSET_OTHER, 0, NULL, NULL, NULL));
	check("dmu_objset_own", dmu_objset_own(dataset, OBJSET_OTHER, 0, 0, name, &objset));
}

static void
fill(int size, unsigned count, uint64_t first)
{
	for (unsigned i = 0; i < count; i++) {
		uint64_t integer = first + i;
		memcpy(value + i * size, &integer, size);
	}
}

static int
change_name(const char *line, uint64_t object, dmu_tx_t *tx)
{
	static char name[2048];
	int size;
	unsigned count;
	uint64_t first;
	int64_t delta;

	if (line[0] == 'i') {
		sscanf(line + 1, "%" SCNd64 " %2000[^\n]", &delta, name);
		return (zap_increment(objset, object, name, delta, tx));
	}
	sscanf(line + 1, "%d %u %" SCNu64 " %2000[^\n]", &size, &count, &first, name);
	fill(size, count, first);
	switch (line[0]) {
	case 'a':
		return (zap_add(objset, object, name, size, count, value, tx));
	case 'u':
		return (zap_update(objset, object, name, size, count, value, tx));
	default:
		return (zap_remove(objset, object, name, tx));
	}
}

static int
change_words(const char *line, uint64_t object, dmu_tx_t *tx)
{
	uint64_t first, key[8];
	int size, length, used;
	unsigned count;

	sscanf(line + 1, "%d %u %" SCNu64 " %d%n", &size, &count, &first, &length, &used);
	const char *rest = line + 1 + used;
	for (int i = 0; i < length && i < 8; i++) {
		sscanf(rest, "%" SCNx64 "%n", &key[i], &used);
		rest += used;
	}
	fill(size, count, first);
	switch (line[0]) {
	case 'A':
		return (zap_add_uint64(objset, object, key, length, size, count, value, tx));
	case 'U':
		return (zap_update_uint64(objset, object, key, length, size, count, value, tx));
	default:
		return (zap_remove_uint64(objset, object, key, length, tx));
	}
}

static void
write_blocks(const char *path, uint64_t object)
{
	union {
		unsigned char bytes[256];
		uint64_t words[32];
		uint32_t halves[64];
	} info;
	FILE *out = fopen(path, "w");

	txg_wait_synced(dmu_objset_pool(objset), 0);
	check("dmu_object_info", dmu_object_info(objset, object, &info));
	uint32_t size = info.halves[0];
	uint64_t end = info.words[6];
	char *block = malloc(size);
	fwrite(&size, sizeof (size), 1, out);
	for (uint64_t offset = 0; offset < end; offset += size) {
		check("dmu_read", dmu_read(objset, object, offset, size, block, 0));
		fwrite(block, size, 1, out);
	}
	fclose(out);
}

int
main(int argc, char **argv)
{
	static char line[8192];
	uint64_t object;
	int norm, flags, shift, changes = 0;

	if (argc != 4) {
		fprintf(stderr, "usage: oracle SCRIPT BLOCKS IMAGE\n");
		return (2);
	}
	FILE *script = fopen(argv[1], "r");
	check("script", script == NULL || fgets(line, sizeof (line), script) == NULL);
	sscanf(line, "C %d %d %d", &norm, &flags, &shift);
	make_pool(argv[3]);
	dmu_tx_t *tx = begin(NEW_OBJECT);
	object = shift == 0 ? zap_create_norm(objset, norm, ZAP_METADATA, 0, 0, tx) :
	    zap_create_flags(objset, norm, flags, ZAP_METADATA, shift, 17, 0, 0, tx);
	while (fgets(line, sizeof (line), script) != NULL) {
		if (changes++ % CHANGES_A_TX == 0) {
			dmu_tx_commit(tx);
			tx = begin(object);
		}
		int words = line[0] == 'A' || line[0] == 'U' || line[0] == 'R';
		int error = words ? change_words(line, object, tx) : change_name(line, object, tx);
		printf("%c %d\n", line[0], error);
	}
	dmu_tx_commit(tx);
	write_blocks(argv[2], object);
	fflush(NULL);
	_exit(0);
}
