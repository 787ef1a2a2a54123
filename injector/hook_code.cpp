#include "injector/hook_code.h"

// Constants of the code below.
#define GPUPERF_STUB_BYTES 32
#define GPUPERF_FRAME_BYTES 144
#define GPUPERF_ENTRY_BYTES 32
#define GPUPERF_TEXT(number) GPUPERF_TEXT_OF(number)
#define GPUPERF_TEXT_OF(number) #number

// gpuperf_enter runs push %rbp, the first instruction of the driver's function, and enters the
// function after it: the daemon's breakpoint sits on that instruction (docs/decisions/0005). r11 is
// free between a caller and its callee. The unwind information is the function's own at that place.
#define GPUPERF_STUB(name, arguments) "gpuperf_stub " #name "\n"
__asm__(
    ".pushsection " GPUPERF_HOOK_SECTION ",\"ax\",@progbits\n"
    ".set gpuperf_entry, 0\n"
    ".macro gpuperf_stub name\n"
    ".p2align 5, 0xcc\n"
    ".type gpuperf_hook_\\name, @function\n"
    "gpuperf_hook_\\name:\n"
    ".cfi_startproc\n"
    "endbr64\n"
    "cmpl $0, gpuperf_hook_flags(%rip)\n"
    "je 1f\n"
    "mov $gpuperf_entry, %r11d\n"
    "jmp gpuperf_count\n"
    "1: jmp *gpuperf_entries + " GPUPERF_TEXT(GPUPERF_ENTRY_BYTES) " * gpuperf_entry(%rip)\n"
    ".cfi_endproc\n"
    ".size gpuperf_hook_\\name, . - gpuperf_hook_\\name\n"
    ".set gpuperf_entry, gpuperf_entry + 1\n"
    ".endm\n"
    ".macro gpuperf_load_arguments\n"
    "mov -104(%rbp), %rdi\n"
    "mov -96(%rbp), %rsi\n"
    "mov -88(%rbp), %rdx\n"
    "mov -80(%rbp), %rcx\n"
    "mov -72(%rbp), %r8\n"
    "mov -64(%rbp), %r9\n"
    ".endm\n"

    ".p2align 5, 0xcc\n"
    ".type gpuperf_count, @function\n"
    "gpuperf_count:\n"  // with the entry in r11d
    ".cfi_startproc\n"
    "push %rbp\n"
    ".cfi_def_cfa_offset 16\n"
    ".cfi_offset %rbp, -16\n"
    "mov %rsp, %rbp\n"
    ".cfi_def_cfa_register %rbp\n"
    "sub $" GPUPERF_TEXT(GPUPERF_FRAME_BYTES) ", %rsp\n"
    "mov %rdi, -104(%rbp)\n"
    "mov %rsi, -96(%rbp)\n"
    "mov %rdx, -88(%rbp)\n"
    "mov %rcx, -80(%rbp)\n"
    "mov %r8, -72(%rbp)\n"
    "mov %r9, -64(%rbp)\n"
    "mov %r11, -48(%rbp)\n"
    "mov %rsp, %rdi\n"
    "call gpuperf_begin_call\n"
    "mov %rax, %r11\n"
    "test %rax, %rax\n"
    "je 4f\n"
    "cmp $5, %edx\n"
    "jne 2f\n"
    "sub $8, %rsp\n"  // an odd number of words would leave the stack unaligned
    "push 48(%rbp)\n"
    "push 40(%rbp)\n"
    "push 32(%rbp)\n"
    "push 24(%rbp)\n"
    "push 16(%rbp)\n"
    "1: gpuperf_load_arguments\n"
    "call gpuperf_enter\n"
    "lea -" GPUPERF_TEXT(GPUPERF_FRAME_BYTES) "(%rbp), %rsp\n"
    "mov %rsp, %rdi\n"
    "mov %eax, %esi\n"
    "call gpuperf_end_call\n"
    ".cfi_remember_state\n"
    "leave\n"
    ".cfi_def_cfa %rsp, 8\n"
    ".cfi_restore %rbp\n"
    "ret\n"
    ".cfi_restore_state\n"
    "2: test %rdx, %rdx\n"
    "je 1b\n"
    "mov %rdx, %rax\n"
    "and $1, %eax\n"
    "shl $3, %eax\n"
    "sub %rax, %rsp\n"
    "3: push 8(%rbp, %rdx, 8)\n"  // the last one first
    "dec %rdx\n"
    "jne 3b\n"
    "jmp 1b\n"
    "4: mov %rdx, %r11\n"
    "gpuperf_load_arguments\n"
    "leave\n"
    ".cfi_def_cfa %rsp, 8\n"
    ".cfi_restore %rbp\n"
    "jmp *%r11\n"
    ".cfi_endproc\n"
    ".size gpuperf_count, . - gpuperf_count\n"

    ".type gpuperf_enter, @function\n"
    "gpuperf_enter:\n"
    ".cfi_startproc\n"
    "push %rbp\n"
    ".cfi_def_cfa_offset 16\n"
    ".cfi_offset %rbp, -16\n"
    "notrack jmp *%r11\n"
    ".cfi_endproc\n"
    ".size gpuperf_enter, . - gpuperf_enter\n"

    // Where gpuperf_enter goes if the call is to use the front door.
    ".globl gpuperf_front\n"
    ".hidden gpuperf_front\n"
    ".type gpuperf_front, @function\n"
    "gpuperf_front:\n"
    ".cfi_startproc\n"
    ".cfi_def_cfa_offset 16\n"
    ".cfi_offset %rbp, -16\n"
    "pop %rbp\n"
    ".cfi_def_cfa_offset 8\n"
    ".cfi_restore %rbp\n"
    "jmp *-56(%rbp)\n"
    ".cfi_endproc\n"
    ".size gpuperf_front, . - gpuperf_front\n"

    ".p2align 5, 0xcc\n"
    "gpuperf_hooks:\n"  //
    GPUPERF_HOOK_ENTRIES(GPUPERF_STUB)  //
    ".popsection\n");
#undef GPUPERF_STUB

namespace gpuperf::injector {

static_assert(offsetof(CallFrame, caller_bp) == GPUPERF_FRAME_BYTES);
static_assert(GPUPERF_FRAME_BYTES % 16 == 0);
static_assert(sizeof(HookedEntry) == GPUPERF_ENTRY_BYTES && offsetof(HookedEntry, real) == 0);
static_assert(offsetof(CallFrame, call.arguments) == GPUPERF_FRAME_BYTES - 104);
static_assert(offsetof(CallFrame, call.return_value) == GPUPERF_FRAME_BYTES - 56);
static_assert(offsetof(CallFrame, call.entry) == GPUPERF_FRAME_BYTES - 48);
static_assert(offsetof(CallFrame, call.pad) == GPUPERF_FRAME_BYTES - 44);

extern "C" {
HookedEntry gpuperf_entries[GPUPERF_HOOK_COUNT];
__attribute__((visibility("hidden"))) extern const char gpuperf_hooks[];
}

Word find_hook(uint32_t entry) {
  return reinterpret_cast<Word>(gpuperf_hooks) + GPUPERF_STUB_BYTES * Word{entry};
}

}  // namespace gpuperf::injector
