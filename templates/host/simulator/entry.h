// Binds a kernel to the simulator: its entry point, and the table of its shared memory that reports are named by.
// Included after the kernel.
#pragma once

#include <cstddef>
#include <iterator>
#include <type_traits>

#define MONOMOE_FIELD(base, type, member) \
    ::sim::field<decltype(type::member)>(#member, static_cast<::sim::u32>((base) + offsetof(type, member)))

#define MONOMOE_PROGRAM(kernel, bytes, fields)                                                                     \
    static void entry(const Arguments& a) {                                                                        \
        kernel(static_cast<const device::Bf16*>(a.x), routing(a),                                                  \
               static_cast<const float*>(a.bias), static_cast<const u8*>(a.w13),                                   \
               static_cast<const float*>(a.w13_scale), static_cast<const u8*>(a.w2),                               \
               static_cast<const float*>(a.w2_scale), static_cast<device::Bf16*>(a.y),                             \
               static_cast<u8*>(a.workspace), a.workspace_half_bytes, a.tokens, a.wait_limit_ns);                 \
    }                                                                                                              \
    extern const Program kProgram = {schedule::kGrid, schedule::kClusterCtas, schedule::kThreads, bytes, entry,    \
                                     fields, std::size(fields)}

namespace sim {

// What the kernel routes by: logits, or the router's weight.
inline auto routing(const Arguments& a) {
    if constexpr (schedule::kRouterWeight) {
        return static_cast<const device::Bf16*>(a.router);
    } else {
        return static_cast<const shape::Logit*>(a.logits);
    }
}

template <typename T>
constexpr Field field(const char* name, u32 offset) {
    return {name, offset, sizeof(T), sizeof(std::remove_all_extents_t<T>),
            {std::extent_v<T, 0>, std::extent_v<T, 1>, std::extent_v<T, 2>, std::extent_v<T, 3>}};
}

}  // namespace sim
