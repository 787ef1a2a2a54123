#pragma once

// Interposes between CUPTI and its other clients in this process, to notice them before their call
// takes effect.
//
// CUPTI does not report other clients, and if an injected library shares CUPTI's buffers with one,
// the other's trace is empty (seen with torch.profiler). So the relevant entries of libcupti's
// symbol table are redirected to our functions, which tell the collector and then call the real
// one: a symbol bound or looked up from then on resolves to ours. In libraries bound earlier, the
// import slots are redirected. Only data is written, a word at a time, on a page that is writable
// for just that moment; code is never touched. The redirection stays until the process ends,
// or the library is detached; a copied slot may be called even then.

#include "injector/cupti_api.h"

namespace gpuperf::injector {

// `api` must already hold the real functions: later lookups get ours. Calling it again only handles
// libraries loaded since. Injector's thread, or within cuInit.
void stand_between(const CuptiApi& api);
// Puts CUPTI's own functions back where ours are found: when the library is detached.
void stand_aside();

}  // namespace gpuperf::injector
