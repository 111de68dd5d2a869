// What the host versions of templates/device/*.cuh are made of: one simulated GPU, driven by a scheduler.
//
// Every function is called by the simulated thread that runs now. A function that has to wait hands the processor to
// another thread. Reports name the caller's return address, so none of these may be inlined.
#pragma once

namespace sim {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

u32 thread_index();
u32 cta_index();
void* shared_storage(u64 bytes);
u64 now();
[[noreturn]] void trap();
void poll_failed(u64 limit_ns);

u32 shared_address(const void* pointer);
void barrier_init(u64* barrier, u32 count);
void barrier_init_fence();
void barrier_arrive(u64* barrier, u32 bytes);
bool barrier_test(u64* barrier, u32 parity);
void barrier_wait(u64* barrier, u32 parity, u64 limit_ns);
void bulk_copy(void* shared, const void* global, u32 bytes, u64* barrier);
void copy_async(void* shared, const void* global, u32 bytes);
void commit_async();
void wait_async(u32 pending);

void cluster_arrive();
void cluster_wait();
void store_remote(void* target, const void* value, u64* barrier, u32 rank);  // 16 bytes

void load_relaxed(void* to, const void* address, u32 words);
void store_relaxed(void* address, const void* word);
u32 atomic_increment_wrap(u32* address, u32 last);
void load_shared(void* to, const void* address, u32 bytes);
void load_input(void* to, const void* address, u32 bytes);

u32 shuffle(u32 value, u32 source);
u32 shuffle_xor(u32 value, u32 mask);
u32 ballot(bool predicate);
u32 reduce_max(u32 value);
u32 reduce_min(u32 value);
u32 reduce_add(u32 value);
void sync_warp();
void sync_named(u32 barrier, u32 threads);
void arrive_named(u32 barrier, u32 threads);
void mma_16x8x16(float* d, const u32* a, const u32* b);
void mma_bf16_16x8x16(float* d, const u32* a, const u32* b);

// Pure arithmetic, without a scheduler.
u32 e4m3_from_float(float value);  // round to nearest even, saturating at 448, NaN is 0x7f
u32 half_from_e4m3(u32 byte);
u32 bf16_from_e4m3(u32 byte);
u16 bf16_from_float(float value);
void multiply_fragments(float (*d)[4], const u32 (*a)[4], const u32 (*b)[2]);  // 32 lanes of mma_16x8x16
void multiply_bf16_fragments(float (*d)[4], const u32 (*a)[4], const u32 (*b)[2]);

// A member of SharedStorage, for reports.
struct Field {
    const char* name;
    u32 offset, bytes, element;
    u32 extent[4];  // 0 after the last dimension
};

// What one launch is called with, as the kernel's arguments.
struct Arguments {
    const void *x, *logits, *router, *bias, *w13, *w13_scale, *w2, *w2_scale;
    void *y, *workspace;
    u32 workspace_half_bytes, tokens;
    u64 wait_limit_ns;
};

// Supplied with the kernel.
struct Program {
    u32 grid, cluster, threads, shared_bytes;  // cluster: CTAs of one, which divide the grid
    void (*entry)(const Arguments&);
    const Field* fields;
    u32 field_count;
};
extern const Program kProgram;

}  // namespace sim
