#include "traffic.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_map>

namespace ua::emu {

std::vector<LaunchRecord> launch_records;
std::mutex launch_records_lock;

void Totals::add(const Totals& other) {
    static_assert(sizeof(Totals) % sizeof(uint64_t) == 0, "only uint64 fields");
    auto* mine = reinterpret_cast<uint64_t*>(this);
    auto* theirs = reinterpret_cast<const uint64_t*>(&other);
    for (size_t i = 0; i < sizeof(Totals) / sizeof(uint64_t); i++) mine[i] += theirs[i];
}

void Footprint::touch(uint64_t address, unsigned bytes) {
    for (uint64_t byte = address; byte < address + bytes; byte++) {
        std::vector<uint64_t>& page = pages_[byte / 4096];
        if (page.empty()) page.resize(64);
        page[byte % 4096 / 64] |= uint64_t{1} << (byte % 64);
    }
}

uint64_t Footprint::count() const {
    uint64_t total = 0;
    for (const auto& [number, page] : pages_)
        for (const uint64_t word : page) total += __builtin_popcountll(word);
    return total;
}

void Footprint::merge(const Footprint& other) {
    for (const auto& [number, page] : other.pages_) {
        std::vector<uint64_t>& mine = pages_[number];
        if (mine.empty()) mine.resize(64);
        for (size_t i = 0; i < 64; i++) mine[i] |= page[i];
    }
}

namespace {

using Lanes = std::array<const Access*, 32>;

// Shared memory has 32 banks of 4 bytes. A request of 8 or 16 bytes a lane is served half or a quarter warp at a time. Lanes
// that read the same word share it; otherwise each further word of a bank takes one more wavefront.
void count_shared(const Access* const* lanes, unsigned width, SharedTraffic& traffic, uint64_t base) {
    const unsigned lanes_at_once = width <= 4 ? 32 : width == 8 ? 16 : 8;
    traffic.requests++;
    for (unsigned start = 0; start < 32; start += lanes_at_once) {
        std::vector<uint64_t> words;
        for (unsigned lane = start; lane < start + lanes_at_once; lane++) {
            if (!lanes[lane]) continue;
            traffic.bytes += lanes[lane]->bytes;
            const uint64_t first = (lanes[lane]->address - base) / 4;
            const uint64_t last = (lanes[lane]->address - base + lanes[lane]->bytes - 1) / 4;
            for (uint64_t word = first; word <= last; word++) words.push_back(word);
        }
        if (words.empty()) continue;
        std::sort(words.begin(), words.end());
        words.erase(std::unique(words.begin(), words.end()), words.end());
        unsigned in_bank[32] = {}, most = 0;
        for (const uint64_t word : words) most = std::max(most, ++in_bank[word % 32]);
        traffic.wavefronts += most;
        traffic.ideal += (words.size() + 31) / 32;
    }
}

void count_sectors(const Access* const* lanes, GlobalTraffic& traffic) {
    std::vector<uint64_t> sectors;
    for (unsigned lane = 0; lane < 32; lane++) {
        if (!lanes[lane] || !lanes[lane]->bytes) continue;
        traffic.bytes += lanes[lane]->bytes;
        const uint64_t first = lanes[lane]->address / 32;
        const uint64_t last = (lanes[lane]->address + lanes[lane]->bytes - 1) / 32;
        for (uint64_t sector = first; sector <= last; sector++) sectors.push_back(sector);
    }
    if (sectors.empty()) return;
    std::sort(sectors.begin(), sectors.end());
    traffic.requests++;
    traffic.sectors += std::unique(sectors.begin(), sectors.end()) - sectors.begin();
}

struct Key {
    const void* site;
    uint32_t occurrence;
    bool operator==(const Key& other) const { return site == other.site && occurrence == other.occurrence; }
};

struct KeyHash {
    size_t operator()(const Key& key) const {
        return std::hash<const void*>()(key.site) * 31 + key.occurrence;
    }
};

bool same_path(const Warp& warp) {
    const std::vector<Access>& first = warp.fibres[0].accesses;
    for (uint32_t lanes = warp.all; lanes; lanes &= lanes - 1) {
        const std::vector<Access>& other = warp.fibres[__builtin_ctz(lanes)].accesses;
        if (other.size() != first.size()) return false;
        for (size_t i = 0; i < first.size(); i++)
            if (other[i].site != first[i].site || other[i].kind != first[i].kind) return false;
    }
    return true;
}

}  // namespace

void Counters::count_global(const Access* const* lanes, const Access& sample) {
    const bool writes = sample.kind == UA_EMU_WRITE;
    count_sectors(lanes, sample.kind == copy_read ? totals.copy : writes ? totals.store : totals.load);
    Footprint& footprint = writes ? written : read;
    for (unsigned lane = 0; lane < 32; lane++)
        if (lanes[lane]) footprint.touch(lanes[lane]->address, lanes[lane]->bytes);
}

void Counters::count(const Access* const* lanes, const unsigned char* shared, unsigned shared_bytes) {
    const Access* sample = *std::find_if(lanes, lanes + 32, [](const Access* access) { return access != nullptr; });
    const auto base = reinterpret_cast<uint64_t>(shared);
    const bool in_arena = sample->address >= base && sample->address < base + shared_bytes;
    const bool is_shared = sample->kind != copy_read && in_arena;
    if (sample->kind == UA_EMU_ATOMIC) {
        totals.atomics++;
    } else if (!is_shared) {
        count_global(lanes, *sample);
    } else {
        SharedTraffic& traffic = sample->kind == UA_EMU_LDMATRIX ? totals.shared_ldmatrix
                                 : sample->kind == copy_write    ? totals.shared_copy
                                 : sample->kind == UA_EMU_WRITE  ? totals.shared_store
                                                                 : totals.shared_load;
        count_shared(lanes, sample->bytes, traffic, base);
    }
}

void Counters::flush(Warp& warp, const unsigned char* shared, unsigned shared_bytes) {
    if (same_path(warp)) {
        const size_t accesses = warp.fibres[0].accesses.size();
        for (size_t i = 0; i < accesses; i++) {
            Lanes lanes = {};
            for (uint32_t rest = warp.all; rest; rest &= rest - 1) {
                const unsigned lane = __builtin_ctz(rest);
                lanes[lane] = &warp.fibres[lane].accesses[i];
            }
            count(lanes.data(), shared, shared_bytes);
        }
    } else {
        std::unordered_map<Key, Lanes, KeyHash> requests;
        for (uint32_t rest = warp.all; rest; rest &= rest - 1) {
            const unsigned lane = __builtin_ctz(rest);
            std::unordered_map<const void*, uint32_t> seen;
            for (const Access& access : warp.fibres[lane].accesses) {
                // A copy notes two accesses at one site: told apart by their kind.
                const void* place = static_cast<const char*>(access.site) + access.kind;
                requests.try_emplace(Key{place, seen[place]++}, Lanes{}).first->second[lane] = &access;
            }
        }
        for (const auto& [key, lanes] : requests) count(lanes.data(), shared, shared_bytes);
    }
    for (uint32_t rest = warp.all; rest; rest &= rest - 1) warp.fibres[__builtin_ctz(rest)].accesses.clear();
}

}  // namespace ua::emu
