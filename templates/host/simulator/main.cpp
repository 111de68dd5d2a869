// Reads a problem, runs it under one (policy, seed) a line of stdin, and answers with one line of JSON each.
//
//   simulator PROBLEM OUTPUT [resident CTAs] [steps]
//
// PROBLEM is a folder with `manifest.txt`: lines `launches N`, `half_bytes N`, `y_bytes LAUNCH N`, `tokens LAUNCH N` and
// `input NAME LAUNCH FILE` (LAUNCH is - for an input that all launches share). The outputs of every run are appended to
// OUTPUT, launch by launch.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <chrono>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <sstream>

#include "simulator/state.h"

namespace sim {
namespace {

constexpr u32 kGuard = 4096;       // bytes around each buffer that nobody may touch
constexpr u32 kHeaderBytes = 128;  // see templates/ops/handoff.cuh


struct Problem {
    u32 launches = 0;
    u64 half_bytes = 0;
    u64 wait_limit_ns = 0;
    std::map<u32, u32> tokens;
    std::map<u32, u64> y_bytes;
    std::map<std::pair<std::string, std::string>, std::vector<char>> inputs;  // by name and launch
};

[[noreturn]] void refuse(const std::string& what) {
    std::cerr << "simulator: " << what << "\n";
    std::exit(2);
}

std::vector<char> read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) refuse("cannot read " + path);
    return {std::istreambuf_iterator<char>(file), {}};
}

Problem read_problem(const std::string& folder) {
    Problem problem;
    std::ifstream manifest(folder + "/manifest.txt");
    if (!manifest) refuse("no manifest.txt in " + folder);
    std::string line;
    while (std::getline(manifest, line)) {
        std::istringstream words(line);
        std::string word, launch, file;
        words >> word;
        if (word == "launches") {
            words >> problem.launches;
        } else if (word == "half_bytes") {
            words >> problem.half_bytes;
        } else if (word == "wait_limit_ns") {
            words >> problem.wait_limit_ns;
        } else if (word == "tokens") {
            u32 index;
            words >> index;
            words >> problem.tokens[index];
        } else if (word == "y_bytes") {
            u32 index;
            words >> index;
            words >> problem.y_bytes[index];
        } else if (word == "input") {
            words >> word >> launch >> file;
            problem.inputs[{word, launch}] = read_file(folder + "/" + file);
        } else {
            refuse("manifest.txt: " + line);
        }
        if (!words) refuse("manifest.txt: " + line);
    }
    return problem;
}

// Memory with room on both sides.
class Guarded {
public:
    explicit Guarded(u64 bytes) : base_(static_cast<char*>(std::aligned_alloc(4096, (bytes + 3 * kGuard) / 4096 * 4096))) {}
    ~Guarded() { std::free(base_); }
    Guarded(const Guarded&) = delete;
    char* memory() const { return base_ + kGuard; }

private:
    char* base_;
};

Region& add_region(const std::string& name, char* memory, u64 bytes, bool writable, bool written) {
    Region& region = machine.regions.emplace_back();
    region.name = name;
    region.memory = memory;
    region.bytes = bytes;
    region.writable = writable;
    if (writable) {
        region.shadow.reset(reinterpret_cast<u64>(memory), bytes, written, 0, 0);
        region.pollers.resize(bytes / 16 + 1);
    }
    return region;
}

// ---- answers

std::string quoted(const std::string& text) { return "\"" + text + "\""; }

std::string place(u64 address) {
    if (!address) return "null";
    for (u32 i = 0; i < machine.ctas.size(); ++i) {
        if (machine.ctas[i].shadow.covers(address)) {
            return "{\"space\": \"shared\", \"cta\": " + std::to_string(i) + ", \"offset\": " + std::to_string(address - machine.ctas[i].shadow.address()) + "}";
        }
    }
    for (const Region& region : machine.regions) {
        const long long at = static_cast<long long>(address - reinterpret_cast<u64>(region.memory));
        if (at >= -static_cast<long long>(kGuard) && at < static_cast<long long>(region.bytes + kGuard)) {
            return "{\"space\": " + quoted(region.name) + ", \"cta\": null, \"offset\": " + std::to_string(at) + "}";
        }
    }
    return "{\"space\": \"unknown\", \"cta\": null, \"offset\": " + std::to_string(address) + "}";
}

std::string site(const Site& site) {
    if (site.thread == kNobody) return "null";
    const u32 cta = site.thread / machine.ids_per_cta(), index = site.thread % machine.ids_per_cta();
    return "{\"cta\": " + std::to_string(cta) + ", \"thread\": " + (index < kProgram.threads ? std::to_string(index) : "null") +
           ", \"pc\": " + std::to_string(site.pc) + ", \"what\": " + quoted(site.what) + "}";
}

std::string reports() {
    std::string text = "[";
    for (const Report& report : machine.reports.list()) {
        text += std::string(text.size() > 1 ? ", " : "") + "{\"kind\": " + quoted(report.kind) + ", \"here\": " + site(report.here) +
                ", \"there\": " + site(report.there) + ", \"at\": " + report.place + ", \"bytes\": " + std::to_string(report.bytes) +
                ", \"count\": " + std::to_string(report.count) + ", \"note\": " + quoted(report.note) + "}";
    }
    return text + "]";
}

// Who waits for what: threads of a warp that wait for the same at the same place share an entry.
std::string waits() {
    struct Group {
        const Thread* first;
        u32 lanes = 0;
    };
    std::map<std::tuple<u32, u32, u32, u64, u32, u32>, Group> groups;
    for (const Thread& thread : machine.threads) {
        if (thread.state == State::kDone) continue;
        const u64 object = thread.wait == Wait::kPoll ? 0 : thread.object;
        Group& group = groups[{thread.cta, thread.index / kLanes, static_cast<u32>(thread.wait), object, thread.parity, thread.pc}];
        if (!group.lanes || !group.first->object) group.first = &thread;  // one that polls, not one that follows
        group.lanes |= 1u << thread.index % kLanes;
    }
    static const char* const kWaits[] = {"nothing", "barrier", "warp", "named barrier", "poll", "cluster", "copies"};
    std::string text = "[";
    for (const auto& [key, group] : groups) {
        const Thread& thread = *group.first;
        const char* const wait = thread.state == State::kWaitsForSm ? "an SM" : kWaits[static_cast<u32>(thread.wait)];
        text += std::string(text.size() > 1 ? ", " : "") + "{\"cta\": " + std::to_string(thread.cta) + ", \"warp\": " + std::to_string(thread.index / kLanes) +
                ", \"lanes\": " + std::to_string(group.lanes) + ", \"for\": " + quoted(wait) + ", \"pc\": " + std::to_string(thread.pc);
        if (thread.wait == Wait::kBarrier || thread.wait == Wait::kPoll) text += ", \"limit_ns\": " + std::to_string(thread.limit_ns);
        if (thread.wait == Wait::kBarrier) {
            const Barrier& barrier = machine.ctas[thread.cta].barriers.at(thread.object);
            text += ", \"at\": " + place(thread.object) + ", \"parity\": " + std::to_string(thread.parity) + ", \"phase\": " + std::to_string(barrier.phase) +
                    ", \"pending\": " + std::to_string(barrier.pending) + ", \"count\": " + std::to_string(barrier.count) + ", \"bytes\": " + std::to_string(barrier.bytes);
        } else if (thread.wait == Wait::kPoll) {
            text += ", \"at\": " + place(thread.object);
        } else if (thread.wait == Wait::kWarp) {
            text += ", \"present\": " + std::to_string(machine.ctas[thread.cta].warps[thread.index / kLanes].arrived);
        } else if (thread.wait == Wait::kCluster) {
            text += ", \"arrived\": " + std::to_string(machine.cluster(thread.cta).arrived) + ", \"count\": " + std::to_string(kProgram.cluster * kProgram.threads);
        } else if (thread.wait == Wait::kNamed) {
            const NamedBarrier& named = machine.ctas[thread.cta].named[thread.object];
            text += ", \"arrived\": " + std::to_string(named.arrived) + ", \"count\": " + std::to_string(named.threads);
        }
        text += "}";
    }
    return text + "]";
}

std::string program() {
    std::string text = "{\"grid\": " + std::to_string(kProgram.grid) + ", \"threads\": " + std::to_string(kProgram.threads) + ", \"fields\": [";
    for (u32 i = 0; i < kProgram.field_count; ++i) {
        const Field& field = kProgram.fields[i];
        text += std::string(i ? ", " : "") + "{\"name\": " + quoted(field.name) + ", \"offset\": " + std::to_string(field.offset) + ", \"bytes\": " + std::to_string(field.bytes) +
                ", \"element\": " + std::to_string(field.element) + ", \"extents\": [";
        for (u32 d = 0; d < 4 && field.extent[d]; ++d) text += std::string(d ? ", " : "") + std::to_string(field.extent[d]);
        text += "]}";
    }
    return text + "]}";
}

// ---- runs

void reset_threads() {
    Clock::set_size(machine.ids_per_cta());
    const Clock zero = Clock::zero();
    machine.threads.resize(kProgram.grid * kProgram.threads);
    for (u32 i = 0; i < machine.threads.size(); ++i) {
        Thread& thread = machine.threads[i];
        thread = Thread();
        thread.cta = i / kProgram.threads;
        thread.index = i % kProgram.threads;
        thread.id = thread.cta * machine.ids_per_cta() + thread.index;
        thread.base = zero;
    }
    machine.copies.clear();
    machine.released.clear();
    machine.ready.clear();
    machine.candidates.clear();
    machine.starving.clear();
}

void reset_ctas(const std::vector<std::unique_ptr<Guarded>>& shared) {
    machine.ctas.resize(kProgram.grid);
    machine.clusters.assign(kProgram.grid / kProgram.cluster, Cluster());
    for (u32 i = 0; i < kProgram.grid; ++i) {
        Cta& cta = machine.ctas[i];
        cta.shared = shared[i]->memory();
        std::memset(cta.shared, 0xff, kProgram.shared_bytes);  // NaN in every format
        cta.shadow.reset(reinterpret_cast<u64>(cta.shared), kProgram.shared_bytes, false, i * machine.ids_per_cta(), machine.ids_per_cta());
        cta.warps.assign(kProgram.threads / kLanes, Warp());
        cta.barriers.clear();
        for (NamedBarrier& named : cta.named) named = NamedBarrier();
        cta.alive = kProgram.threads;
        cta.copies_issued = 0;
        cta.started = false;
    }
}

const void* input(const Problem& problem, const std::string& name, u32 launch, std::map<std::string, std::unique_ptr<Guarded>>& memory) {
    std::string which = "-";
    auto found = problem.inputs.find({name, which});
    if (found == problem.inputs.end()) found = problem.inputs.find({name, which = std::to_string(launch)});
    if (found == problem.inputs.end()) return nullptr;
    std::unique_ptr<Guarded>& buffer = memory[name + which];
    if (!buffer) {
        buffer = std::make_unique<Guarded>(found->second.size());
        std::memcpy(buffer->memory(), found->second.data(), found->second.size());
    }
    add_region(name, buffer->memory(), found->second.size(), false, true);
    return buffer->memory();
}

void run_all(const Problem& problem, const std::string& output_path) {
    machine.stacks = std::make_unique<Stacks>(kProgram.grid * kProgram.threads);
    std::vector<std::unique_ptr<Guarded>> shared;
    for (u32 i = 0; i < kProgram.grid; ++i) shared.push_back(std::make_unique<Guarded>(kProgram.shared_bytes));
    const u64 workspace_bytes = kHeaderBytes + 2 * problem.half_bytes;
    Guarded workspace(workspace_bytes);
    std::map<std::string, std::unique_ptr<Guarded>> memory;
    std::ofstream output(output_path, std::ios::binary | std::ios::app);
    std::cout << "{\"program\": " << program() << "}" << std::endl;

    std::string name;
    u64 seed;
    while (std::cin >> name >> seed) {
        const auto start = std::chrono::steady_clock::now();
        machine.random.seed(seed * 1000003 + name.size());
        machine.reports.clear();
        std::memset(workspace.memory(), 0, workspace_bytes);
        const char* status = "ok";
        u32 launch = 0;
        u64 steps = 0;
        std::string blocked = "[]";
        for (; launch < problem.launches; ++launch) {
            machine.policy = make_policy(name, machine.random);
            machine.regions.clear();
            reset_threads();
            reset_ctas(shared);
            const u64 y_bytes = problem.y_bytes.at(launch);
            Guarded y(y_bytes);
            std::memset(y.memory(), 0xff, y_bytes);
            machine.arguments = {input(problem, "x", launch, memory),       input(problem, "logits", launch, memory),
                                 input(problem, "router", launch, memory),
                                 input(problem, "bias", launch, memory),    input(problem, "w13", launch, memory),
                                 input(problem, "w13_scale", launch, memory), input(problem, "w2", launch, memory),
                                 input(problem, "w2_scale", launch, memory), y.memory(), workspace.memory(),
                                 static_cast<u32>(problem.half_bytes),      problem.tokens.at(launch), problem.wait_limit_ns};
            add_region("y", y.memory(), y_bytes, true, false);
            add_region("workspace", workspace.memory(), workspace_bytes, true, true);
            status = run();
            steps += machine.steps;
            for (Report& report : machine.reports.list()) {
                if (report.place.empty()) report.place = place(report.address);
            }
            output.write(y.memory(), static_cast<std::streamsize>(y_bytes));
            if (std::strcmp(status, "ok") != 0) {
                if (std::strcmp(status, "fault") != 0) blocked = waits();
                break;
            }
        }
        for (u32 left = launch + 1; left < problem.launches; ++left) {
            const std::vector<char> nothing(problem.y_bytes.at(left), static_cast<char>(0xff));
            output.write(nothing.data(), static_cast<std::streamsize>(nothing.size()));
        }
        output.flush();
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        std::cout << "{\"policy\": " << quoted(name) << ", \"seed\": " << seed << ", \"status\": " << quoted(status) << ", \"launch\": " << launch
                  << ", \"steps\": " << steps << ", \"seconds\": " << seconds << ", \"waits\": " << blocked << ", \"reports\": " << reports() << "}" << std::endl;
    }
}

}  // namespace
}  // namespace sim

int main(int count, char** words) {
    if (count < 3) sim::refuse("give a problem folder and an output file");
    if (count > 3) sim::machine.limits.resident = static_cast<sim::u32>(std::atoi(words[3]));
    if (count > 4) sim::machine.limits.steps = static_cast<sim::u64>(std::atoll(words[4]));
    sim::run_all(sim::read_problem(words[1]), words[2]);
    return 0;
}
