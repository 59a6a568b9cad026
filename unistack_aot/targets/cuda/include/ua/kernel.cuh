// The one header that a generated kernel includes.
#pragma once
#include "memory.cuh"
#include "platform.cuh"
#include "types.cuh"
