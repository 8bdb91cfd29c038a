// Runs a window with several lanes, each a thread of the host: tests look for races between them.
//
//   device_lanes WINDOW OUTCOME
//
// WINDOW has nine counts, then the tables and the input of a window (tests/host_device.py writes it).
// OUTCOME gets the statuses of all streams, that of the boxes, and the result.

#include <pthread.h>
#include <stdio.h>
#include <thread>
#include <vector>

#define HOST_THREADS 8
#define HOST_LANES 4
#include "kernels.cu"

thread_local u32 host_thread = 0;
static pthread_barrier_t team;
static pthread_barrier_t warps[HOST_THREADS / HOST_LANES];

#ifdef WITHOUT_BARRIERS
void host_sync_warp() {}
void host_sync_team() {}
#else
void host_sync_warp() { pthread_barrier_wait(&warps[host_thread / HOST_LANES]); }
void host_sync_team() { pthread_barrier_wait(&team); }
#endif

template <typename Kernel> static void launch(Kernel kernel) {
    std::vector<std::thread> threads;
    for (u32 number = 0; number < HOST_THREADS; ++number)
        threads.emplace_back([&kernel, number] {
            host_thread = number;
            kernel();
        });
    for (std::thread& thread : threads) thread.join();
}

template <typename Item> static std::vector<Item> read_items(FILE* file, u64 count) {
    std::vector<Item> items(count);
    if (fread(items.data(), sizeof(Item), count, file) != count) throw "the window is cut off";
    return items;
}

int main(int, char** arguments) {
    pthread_barrier_init(&team, nullptr, HOST_THREADS);
    for (pthread_barrier_t& warp : warps) pthread_barrier_init(&warp, nullptr, HOST_LANES);
    FILE* file = fopen(arguments[1], "rb");
    std::vector<u64> counts = read_items<u64>(file, 9);
    std::vector<Block> blocks = read_items<Block>(file, counts[0]);
    std::vector<u32> block_owners = read_items<u32>(file, counts[1]);
    std::vector<u8> input = read_items<u8>(file, counts[2]);
    std::vector<Box> boxes = read_items<Box>(file, counts[3]);
    std::vector<u32> box_owners = read_items<u32>(file, counts[4]);
    std::vector<Axis> axes = read_items<Axis>(file, counts[5]);
    std::vector<i64> offsets = read_items<i64>(file, counts[6]);
    std::vector<u8> front(counts[7]), back(counts[7]), result(counts[8]);
    std::vector<u32> status(counts[1] + 1);
    std::vector<u64> planes(counts[1]);
    u32 next = 0;
    fclose(file);
    launch([&] {
        find_streams(
            blocks.data(), blocks.size(), input.data(), input.size(), front.size(), result.size(), planes.data(),
            status.data(), planes.size()
        );
    });
    launch([&] {
        decode_streams(
            blocks.data(), blocks.size(), block_owners.data(), block_owners.size(), input.data(),
            input.size(), front.data(), front.size(), result.data(), result.size(), planes.data(),
            status.data(), &next
        );
    });
    for (u32 referring = 0; referring < 2; ++referring)
        launch([&] {
            undo_filters(
                blocks.data(), blocks.size(), planes.data(), planes.size(), input.data(), input.size(),
                front.data(), back.data(), front.size(), result.data(), result.size(), referring
            );
        });
    launch([&] {
        scatter(
            boxes.data(), boxes.size(), box_owners.data(), box_owners.size(), axes.data(), axes.size(),
            offsets.data(), offsets.size(), front.data(), back.data(), front.size(), result.data(),
            result.size(), &status[counts[1]]
        );
    });
    launch([&] { swap_bytes(result.data(), result.size() / 2, 2); });
    launch([&] { swap_bytes(result.data(), result.size() / 2, 2); });
    file = fopen(arguments[2], "wb");
    fwrite(status.data(), 4, status.size(), file);
    fwrite(result.data(), 1, result.size(), file);
    return fclose(file);
}
