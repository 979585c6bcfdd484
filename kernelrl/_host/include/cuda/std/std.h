// cuda::std is the standard library under another name
#pragma once
#include "../../kernelrl_host.h"
#ifndef KRL_STD
#define KRL_STD
namespace cuda { namespace std {
using namespace ::std;
} }
#endif
