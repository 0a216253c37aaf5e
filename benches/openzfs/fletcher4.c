/*
 * How fast OpenZFS's fletcher4 kernels are in user space on this machine: the functions that its
 * library libzpool exports, called like any caller would. Prints a line for each kernel, byte
 * order and size: "KERNEL ORDER BYTES BYTES-PER-SECOND", the best of several runs.
 *
 * cc -O2 fletcher4.c -ldl && ./a.out
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef void (*checksum)(const void *, size_t, const void *, uint64_t[4]);

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static double best_speed(checksum run, const char *data, size_t size)
{
	size_t repeats = ((size_t)32 << 20) / size + 1;
	double best = 0;
	for (int round = 0; round < 9; round++) {
		uint64_t sums[4];
		double start = now();
		for (size_t i = 0; i < repeats; i++)
			run(data, size, NULL, sums);
		double speed = repeats * (double)size / (now() - start);
		if (speed > best)
			best = speed;
	}
	return best;
}

int main(void)
{
	static const char *kernels[] = { "scalar", "superscalar", "superscalar4", "sse2", "ssse3",
		"avx2", "avx512f", "avx512bw", "aarch64_neon" };
	static const size_t sizes[] = { 16 << 10, 128 << 10, 1 << 20, (size_t)512 << 20 };
	void *library = dlopen("libzpool.so.6", RTLD_NOW);
	if (!library)
		library = dlopen("libzpool.so.5", RTLD_NOW);
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	void (*init)(void) = (void (*)(void))dlsym(library, "fletcher_4_init");
	int (*choose)(const char *) = (int (*)(const char *))dlsym(library, "fletcher_4_impl_set");
	checksum orders[] = { (checksum)dlsym(library, "fletcher_4_native"),
		(checksum)dlsym(library, "fletcher_4_byteswap") };
	if (!init || !choose || !orders[0] || !orders[1]) {
		fprintf(stderr, "libzpool has no fletcher4\n");
		return 1;
	}
	init();
	for (size_t s = 0; s < sizeof (sizes) / sizeof (sizes[0]); s++) {
		char *data = aligned_alloc(64, sizes[s]);
		if (!data)
			return 1;
		for (size_t i = 0; i < sizes[s]; i++)
			data[i] = (char)(i * 2654435761u >> 24);
		for (size_t k = 0; k < sizeof (kernels) / sizeof (kernels[0]); k++) {
			if (choose(kernels[k]) != 0)
				continue;
			for (int order = 0; order < 2; order++)
				printf("%s %s %zu %.0f\n", kernels[k],
				    order == 0 ? "native" : "swapped", sizes[s],
				    best_speed(orders[order], data, sizes[s]));
		}
		free(data);
	}
	return 0;
}
