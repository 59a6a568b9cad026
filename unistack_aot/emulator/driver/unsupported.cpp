// Driver calls that pycuda links against and the emulator does not offer: each says so on standard error, once, and returns
// CUDA_ERROR_NOT_SUPPORTED.
#include <cstdio>
#include <mutex>
#include <set>
#include <string>

#include "driver_types.hpp"

namespace ua::emu {

void say_unsupported(const char* what) {
    static std::mutex lock;
    static std::set<std::string> said;
    std::lock_guard hold(lock);
    if (said.insert(what).second) fprintf(stderr, "unistack emulator: %s is not supported\n", what);
}

}  // namespace ua::emu

#define UA_UNSUPPORTED(name)                  \
    UA_DRIVER name() {                        \
        ua::emu::say_unsupported(#name);      \
        return CUDA_ERROR_NOT_SUPPORTED;      \
    }

UA_UNSUPPORTED(cuArray3DCreate_v2)
UA_UNSUPPORTED(cuArray3DGetDescriptor_v2)
UA_UNSUPPORTED(cuArrayCreate_v2)
UA_UNSUPPORTED(cuArrayDestroy)
UA_UNSUPPORTED(cuArrayGetDescriptor_v2)
UA_UNSUPPORTED(cuCtxDisablePeerAccess)
UA_UNSUPPORTED(cuCtxEnablePeerAccess)
UA_UNSUPPORTED(cuIpcCloseMemHandle)
UA_UNSUPPORTED(cuIpcGetEventHandle)
UA_UNSUPPORTED(cuIpcGetMemHandle)
UA_UNSUPPORTED(cuIpcOpenEventHandle)
UA_UNSUPPORTED(cuIpcOpenMemHandle_v2)
UA_UNSUPPORTED(cuLaunch)
UA_UNSUPPORTED(cuLaunchGrid)
UA_UNSUPPORTED(cuLaunchGridAsync)
UA_UNSUPPORTED(cuLinkAddData_v2)
UA_UNSUPPORTED(cuLinkAddFile_v2)
UA_UNSUPPORTED(cuLinkComplete)
UA_UNSUPPORTED(cuLinkCreate_v2)
UA_UNSUPPORTED(cuLinkDestroy)
UA_UNSUPPORTED(cuMemcpy3DPeer)
UA_UNSUPPORTED(cuMemcpy3DPeerAsync)
UA_UNSUPPORTED(cuMemcpyAtoA_v2)
UA_UNSUPPORTED(cuMemcpyAtoD_v2)
UA_UNSUPPORTED(cuMemcpyAtoH_v2)
UA_UNSUPPORTED(cuMemcpyDtoA_v2)
UA_UNSUPPORTED(cuMemcpyHtoA_v2)
UA_UNSUPPORTED(cuModuleGetSurfRef)
UA_UNSUPPORTED(cuModuleGetTexRef)
UA_UNSUPPORTED(cuParamSetSize)
UA_UNSUPPORTED(cuParamSetTexRef)
UA_UNSUPPORTED(cuParamSetf)
UA_UNSUPPORTED(cuParamSeti)
UA_UNSUPPORTED(cuParamSetv)
UA_UNSUPPORTED(cuProfilerInitialize)
UA_UNSUPPORTED(cuStreamAttachMemAsync)
UA_UNSUPPORTED(cuSurfRefGetArray)
UA_UNSUPPORTED(cuSurfRefSetArray)
UA_UNSUPPORTED(cuTexRefCreate)
UA_UNSUPPORTED(cuTexRefDestroy)
UA_UNSUPPORTED(cuTexRefGetAddressMode)
UA_UNSUPPORTED(cuTexRefGetAddress_v2)
UA_UNSUPPORTED(cuTexRefGetArray)
UA_UNSUPPORTED(cuTexRefGetFilterMode)
UA_UNSUPPORTED(cuTexRefGetFlags)
UA_UNSUPPORTED(cuTexRefGetFormat)
UA_UNSUPPORTED(cuTexRefSetAddress2D_v3)
UA_UNSUPPORTED(cuTexRefSetAddressMode)
UA_UNSUPPORTED(cuTexRefSetAddress_v2)
UA_UNSUPPORTED(cuTexRefSetArray)
UA_UNSUPPORTED(cuTexRefSetFilterMode)
UA_UNSUPPORTED(cuTexRefSetFlags)
UA_UNSUPPORTED(cuTexRefSetFormat)
