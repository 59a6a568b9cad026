#include "stream.hpp"

#include <chrono>
#include <set>
#include <utility>
#include <vector>

namespace ua::emu {

namespace {

struct Graph {
    std::vector<Work> work;
};

struct Stream {
    Graph* capturing = nullptr;
    std::vector<Work> pending;
};

struct Event {
    double seconds = 0;
    Stream* stream = nullptr;
    bool happened = false;
};

Stream default_stream;
std::set<Stream*> streams;
CUresult sticky_error = CUDA_SUCCESS;
bool lazy = false;

Stream* stream_of(CUstream handle) {
    // 0, 1 and 2 are the default streams of the driver interface.
    return reinterpret_cast<std::uintptr_t>(handle) <= 2 ? &default_stream : reinterpret_cast<Stream*>(handle);
}

CUresult run(const Work& work) {
    const CUresult result = work();
    if (result == CUDA_ERROR_ILLEGAL_ADDRESS || result == CUDA_ERROR_LAUNCH_FAILED) sticky_error = result;
    return result;
}

CUresult finish(Stream* stream) {
    while (!stream->pending.empty()) {
        const std::vector<Work> batch = std::exchange(stream->pending, {});
        for (const Work& work : batch)
            if (!sticky_error) run(work);
    }
    return sticky_error;
}

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

CUresult finish_all() {
    finish(&default_stream);
    for (Stream* stream : streams) finish(stream);
    return sticky_error;
}

CUresult submit(CUstream handle, Work work) {
    Stream* stream = stream_of(handle);
    if (stream->capturing) {
        stream->capturing->work.push_back(std::move(work));
        return CUDA_SUCCESS;
    }
    if (stream == &default_stream) finish_all();
    if (sticky_error) return sticky_error;
    if (!lazy) return run(work);
    stream->pending.push_back(std::move(work));
    return CUDA_SUCCESS;
}

CUresult run_now(Work work) {
    if (const CUresult result = finish_all()) return result;
    return run(work);
}

void reset_sticky_error() { sticky_error = CUDA_SUCCESS; }
void set_lazy(bool on) { lazy = on; }

}  // namespace ua::emu

using namespace ua::emu;

UA_DRIVER cuStreamCreate(CUstream* handle, unsigned) {
    auto* stream = new Stream;
    streams.insert(stream);
    *handle = reinterpret_cast<CUstream>(stream);
    return CUDA_SUCCESS;
}

UA_DRIVER cuStreamDestroy_v2(CUstream handle) {
    Stream* stream = stream_of(handle);
    finish(stream);
    if (streams.erase(stream)) delete stream;
    return CUDA_SUCCESS;
}

UA_DRIVER cuStreamSynchronize(CUstream handle) { return finish(stream_of(handle)); }

UA_DRIVER cuStreamQuery(CUstream handle) {
    return stream_of(handle)->pending.empty() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

UA_DRIVER cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned) {
    auto* event = reinterpret_cast<Event*>(event_handle);
    return submit(handle, [event] {
        return event->stream && !event->happened ? finish(event->stream) : CUDA_SUCCESS;
    });
}

UA_DRIVER cuEventCreate(CUevent* handle, unsigned) {
    *handle = reinterpret_cast<CUevent>(new Event);
    return CUDA_SUCCESS;
}

UA_DRIVER cuEventDestroy_v2(CUevent handle) {
    finish_all();
    delete reinterpret_cast<Event*>(handle);
    return CUDA_SUCCESS;
}

UA_DRIVER cuEventRecord(CUevent handle, CUstream stream) {
    auto* event = reinterpret_cast<Event*>(handle);
    event->stream = stream_of(stream);
    event->happened = false;
    return submit(stream, [event] {
        event->seconds = now();
        event->happened = true;
        return CUDA_SUCCESS;
    });
}

UA_DRIVER cuEventSynchronize(CUevent handle) {
    auto* event = reinterpret_cast<Event*>(handle);
    return event->stream && !event->happened ? finish(event->stream) : CUDA_SUCCESS;
}

UA_DRIVER cuEventQuery(CUevent handle) {
    auto* event = reinterpret_cast<Event*>(handle);
    return !event->stream || event->happened ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

// Host time between two events: how long the emulation took, not what a GPU would need.
UA_DRIVER cuEventElapsedTime_v2(float* milliseconds, CUevent first, CUevent second) {
    auto* from = reinterpret_cast<Event*>(first);
    auto* to = reinterpret_cast<Event*>(second);
    if (!from->happened || !to->happened) return CUDA_ERROR_NOT_READY;
    *milliseconds = static_cast<float>((to->seconds - from->seconds) * 1e3);
    return CUDA_SUCCESS;
}
UA_DRIVER cuEventElapsedTime(float* milliseconds, CUevent first, CUevent second) {
    return cuEventElapsedTime_v2(milliseconds, first, second);
}

// ---- graphs: the work of a capture, run again

UA_DRIVER cuStreamBeginCapture_v2(CUstream handle, int) {
    Stream* stream = stream_of(handle);
    if (stream == &default_stream || stream->capturing) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    stream->capturing = new Graph;
    return CUDA_SUCCESS;
}

UA_DRIVER cuStreamEndCapture(CUstream handle, CUgraph* graph) {
    Stream* stream = stream_of(handle);
    if (!stream->capturing) return CUDA_ERROR_INVALID_VALUE;
    *graph = reinterpret_cast<CUgraph>(std::exchange(stream->capturing, nullptr));
    return CUDA_SUCCESS;
}

UA_DRIVER cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph, unsigned long long) {
    *executable = reinterpret_cast<CUgraphExec>(new Graph(*reinterpret_cast<Graph*>(graph)));
    return CUDA_SUCCESS;
}

UA_DRIVER cuGraphLaunch(CUgraphExec executable, CUstream stream) {
    auto* graph = reinterpret_cast<Graph*>(executable);
    return submit(stream, [graph] {
        for (const Work& work : graph->work)
            if (const CUresult result = work()) return result;
        return static_cast<CUresult>(CUDA_SUCCESS);
    });
}

UA_DRIVER cuGraphDestroy(CUgraph graph) {
    delete reinterpret_cast<Graph*>(graph);
    return CUDA_SUCCESS;
}

UA_DRIVER cuGraphExecDestroy(CUgraphExec executable) {
    finish_all();
    delete reinterpret_cast<Graph*>(executable);
    return CUDA_SUCCESS;
}
