// The lane kernel once more, for comparison: both schedulers on drawn workloads, 16-bit lanes, sorted times.
//
// The same draws, tiles and networks as sweep/model/lockstep.py, so its results are equal to the last bit. Left out are
// wider lanes, rings and heaps. Compile: g++ -O3 -march=native -shared -fPIC lanes.cpp -o lanes.so

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

namespace {

using Lane = std::uint16_t;
constexpr std::size_t lanes = 128, tile = 64, four = 4;
constexpr std::uint64_t low = 0xFFFFFFFF;

struct Free {
    void operator()(void *memory) const { std::free(memory); }
};

template <class T> using Rows = std::unique_ptr<T[], Free>;

template <class T> Rows<T> rows(std::size_t count) {  // each row starts on a cache line
    return Rows<T>(static_cast<T *>(std::aligned_alloc(64, std::max<std::size_t>(1, count) * lanes * sizeof(T))));
}

struct Table {
    const Lane *direct;
    const std::uint32_t *guide, *last_word;
    const Lane *values;
};

struct Server {
    std::size_t slots, rows, members = 0;
    Rows<Lane> free, group;
    Rows<std::int64_t> origin, steps;

    explicit Server(std::size_t places)
        : slots(places), rows((places + 3) / four * four), free(::rows<Lane>(rows)), group(::rows<Lane>(1)),
          origin(::rows<std::int64_t>(1)), steps(::rows<std::int64_t>(1)) {}

    void reset() {
        members = 0;
        std::fill_n(free.get(), slots * lanes, Lane(0));
        std::fill_n(free.get() + slots * lanes, (rows - slots) * lanes, Lane(~0));  // slots that are never free
        std::fill_n(group.get(), lanes, Lane(0));
        std::fill_n(origin.get(), lanes, 0);
        std::fill_n(steps.get(), lanes, 0);
    }
};

void draw_words(std::uint32_t key0, std::uint32_t key1, std::uint32_t block, std::uint64_t first,
                std::uint32_t *__restrict words) {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
        const std::uint64_t replicate = first + lane;
        std::uint64_t c0 = 0, c1 = replicate & low, c2 = replicate >> 32, c3 = block, k0 = key0, k1 = key1;
        for (int round = 0; round < 10; ++round) {  // Philox4x32-10 (Salmon et al., 2011), a word in 64 bits each
            const std::uint64_t product0 = 0xD2511F53 * c0, product1 = 0xCD9E8D57 * c2;
            c0 = (product1 >> 32) ^ c1 ^ k0;
            c2 = (product0 >> 32) ^ c3 ^ k1;
            c1 = product1 & low;
            c3 = product0 & low;
            k0 = (k0 + 0x9E3779B9) & low;
            k1 = (k1 + 0xBB67AE85) & low;
        }
        words[lane] = std::uint32_t(c0);
        words[lanes + lane] = std::uint32_t(c1);
        words[2 * lanes + lane] = std::uint32_t(c2);
        words[3 * lanes + lane] = std::uint32_t(c3);
    }
}

inline Lane search(std::uint32_t word, const Table &table) {
    std::size_t entry = table.guide[word >> 16];
    while (word > table.last_word[entry]) ++entry;
    return table.values[entry];
}

void look_up(const std::uint32_t *__restrict words, const Table &table, Lane *__restrict lengths) {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
        Lane any = 0;
        for (std::size_t row = 0; row < four; ++row) {
            const Lane length = table.direct[words[row * lanes + lane] >> 16];
            lengths[row * lanes + lane] = length;
            any |= length;
        }
        if (any == Lane(~0))
            for (std::size_t row = 0; row < four; ++row)
                lengths[row * lanes + lane] = search(words[row * lanes + lane], table);
    }
}

void count(const Lane *__restrict lengths, std::size_t requests, Lane *__restrict fours, Lane *__restrict longest,
           std::int64_t *__restrict tokens) {
    for (std::size_t row = 0; row < requests; row += four)
        for (std::size_t lane = 0; lane < lanes; ++lane) {
            const Lane *at = lengths + row * lanes + lane;
            const Lane l0 = at[0], l1 = at[lanes], l2 = at[2 * lanes], l3 = at[3 * lanes];
            tokens[lane] += Lane(l0 + l1 + l2 + l3);
            const Lane most = std::max(std::max(l0, l1), std::max(l2, l3));
            fours[row / four * lanes + lane] = most;
            longest[lane] = std::max(longest[lane], most);
        }
}

std::size_t schedule_static(const Lane *__restrict lengths, std::size_t requests, std::size_t slots,
                            std::size_t members, Lane *__restrict group, std::int64_t *__restrict steps) {
    for (std::size_t request = 0; request < requests; ++request) {
        for (std::size_t lane = 0; lane < lanes; ++lane)
            group[lane] = std::max(group[lane], lengths[request * lanes + lane]);
        if (++members == slots) {
            for (std::size_t lane = 0; lane < lanes; ++lane) {
                steps[lane] += group[lane];
                group[lane] = 0;
            }
            members = 0;
        }
    }
    return members;
}

inline void order(Lane &one, Lane &other) {
    const Lane low = std::min(one, other), high = std::max(one, other);
    one = low;
    other = high;
}

inline void merge(Lane *__restrict free, Lane *__restrict late) {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
        Lane x0 = late[lane], x1 = late[lanes + lane], x2 = late[2 * lanes + lane], x3 = late[3 * lanes + lane];
        Lane *of = free + four * lanes + lane, *to = free + lane;
        Lane y0 = of[0], y1 = of[lanes], y2 = of[2 * lanes], y3 = of[3 * lanes];
        order(x0, y0), order(x1, y1), order(x2, y2), order(x3, y3);
        order(x2, y0), order(x3, y1);
        order(x1, x2), order(x3, y0), order(y1, y2);
        to[0] = x0, to[lanes] = x1, to[2 * lanes] = x2, to[3 * lanes] = x3;
        late[lane] = y0, late[lanes + lane] = y1, late[2 * lanes + lane] = y2, late[3 * lanes + lane] = y3;
    }
}

void schedule_continuous(const Lane *__restrict lengths, std::size_t requests, std::size_t slots,
                         Lane *__restrict free, Lane *__restrict late) {
    for (std::size_t row = 0; row < requests; row += four) {
        for (std::size_t lane = 0; lane < lanes; ++lane) {
            const Lane *length = lengths + row * lanes + lane;
            Lane f1 = free[lanes + lane], f2 = free[2 * lanes + lane], f3 = free[3 * lanes + lane];
            Lane x0 = Lane(free[lane] + length[0]);
            order(f1, x0), order(f2, x0), order(f3, x0);
            Lane x1 = Lane(f1 + length[lanes]);
            order(f2, x1), order(f3, x1);
            Lane x2 = Lane(f2 + length[2 * lanes]);
            order(f3, x2);
            Lane x3 = Lane(f3 + length[3 * lanes]);
            order(x0, x1), order(x2, x3), order(x0, x2), order(x1, x3), order(x1, x2);
            late[lane] = x0, late[lanes + lane] = x1, late[2 * lanes + lane] = x2, late[3 * lanes + lane] = x3;
        }
        for (std::size_t slot = four; slot < slots; slot += four) merge(free + (slot - four) * lanes, late);
        std::copy_n(late, four * lanes, free + (slots - four) * lanes);
    }
}

void rebase(std::size_t slots, Lane *__restrict free, Lane *__restrict first, std::int64_t *__restrict origin) {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
        first[lane] = free[lane];
        origin[lane] += free[lane];
    }
    for (std::size_t slot = 0; slot < slots; ++slot)
        for (std::size_t lane = 0; lane < lanes; ++lane) free[slot * lanes + lane] -= first[lane];
}

}  // namespace

extern "C" void drawn(std::uint32_t key0, std::uint32_t key1, std::uint64_t first, std::uint64_t replicates,
                      std::uint64_t requests, const Lane *direct, const std::uint32_t *guide,
                      const std::uint32_t *last_word, const Lane *values, const std::uint64_t *slots,
                      std::uint64_t servers, std::int64_t *tokens, std::int64_t *longest, std::int64_t *static_steps,
                      std::int64_t *continuous_steps) {
    const Table table{direct, guide, last_word, values};
    std::vector<Server> all(slots, slots + servers);
    const auto lengths = rows<Lane>(tile), fours = rows<Lane>(tile / four), late = rows<Lane>(four), most = rows<Lane>(1);
    const auto words = rows<std::uint32_t>(four);
    const auto sums = rows<std::int64_t>(1);
    for (std::size_t block = 0; block < replicates; block += lanes) {
        for (Server &server : all) server.reset();
        std::fill_n(most.get(), lanes, Lane(0));
        std::fill_n(sums.get(), lanes, 0);
        for (std::size_t start = 0; start < requests; start += tile) {
            const std::size_t some = std::min(tile, requests - start), whole = (some + 3) / four * four;
            for (std::size_t row = 0; row < some; row += four) {
                draw_words(key0, key1, std::uint32_t((start + row) / four), first + block, words.get());
                look_up(words.get(), table, lengths.get() + row * lanes);
            }
            std::fill(lengths.get() + some * lanes, lengths.get() + tile * lanes, Lane(0));
            count(lengths.get(), whole, fours.get(), most.get(), sums.get());
            for (Server &server : all) {
                const bool by_fours = server.slots % four == 0;
                server.members = schedule_static(
                    by_fours ? fours.get() : lengths.get(), by_fours ? whole / four : some,
                    by_fours ? server.slots / four : server.slots, server.members, server.group.get(),
                    server.steps.get());
                schedule_continuous(lengths.get(), whole, server.rows, server.free.get(), late.get());
                rebase(server.slots, server.free.get(), late.get(), server.origin.get());
            }
        }
        for (std::size_t lane = 0; lane < std::min<std::size_t>(lanes, replicates - block); ++lane) {
            tokens[block + lane] = sums[lane];
            longest[block + lane] = most[lane];
            for (std::size_t server = 0; server < servers; ++server) {
                const Server &one = all[server];
                static_steps[server * replicates + block + lane] = one.steps[lane] + one.group[lane];
                continuous_steps[server * replicates + block + lane] =
                    one.origin[lane] + one.free[(one.slots - 1) * lanes + lane];
            }
        }
    }
}
