#pragma once

// Stands between CUPTI and its other clients in this process, so that they are noticed before their
// call does its work.
//
// CUPTI says nothing of other clients, and an injected library that shares its buffers with one
// makes the other's trace empty (seen with torch.profiler). So the entries of libcupti's symbol
// table that matter are turned to functions of ours, which tell the collector and then call the
// real one: who binds or looks up a symbol from then on gets ours. Libraries that bound before have
// their import slots turned. Nothing but data is written, a word at a time, each on a page that is
// writable for that moment; code is never touched. It stays so for the life of the process: a slot
// that somebody copied may be called at any time.

#include "injector/cupti_api.h"

namespace gpuperf::injector {

// `api` has its functions already: whoever looks them up later gets ours. Called again, it only
// does what is new: libraries loaded since. Injector's thread, or within cuInit.
void stand_between(const CuptiApi& api);

}  // namespace gpuperf::injector
