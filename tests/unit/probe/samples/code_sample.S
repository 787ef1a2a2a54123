/*
 * Functions that are read, never run, one for each rule of docs/decisions/0005. What is right stands
 * beside the code: probe_NAME is where NAME must be probed (without it: at its beginning), exit_NAME_1
 * and on are the instructions that leave it, exit_NAME_1_cc4 one that leaves when condition 4 holds.
 */
	.macro	begin name
	.balign	16
	.type	\name, @function
\name:
	.cfi_startproc
	.endm

	.macro	end name
	.cfi_endproc
	.size	\name, . - \name
	.endm

	.macro	return name, number
exit_\name\()_\number:
	ret
	.endm

	.text

/* ---- where the entry is probed ---- */

	.globl	push_first
	begin	push_first
	push	%rbp
	pop	%rbp
	ret
	end	push_first

	begin	behind_endbr64
	endbr64
probe_behind_endbr64:
	push	%r15
	pop	%r15
	ret
	end	behind_endbr64

	begin	behind_compare
	test	%rdi, %rdi
probe_behind_compare:
	je	1f
	mov	$1, %eax
1:	ret
	end	behind_compare

	begin	behind_loads
	endbr64
	mov	8(%rdi), %rax
	lea	4(%rsi), %r10
	movzbl	(%rax), %r11d
	pxor	%xmm0, %xmm0
probe_behind_loads:
	call	push_first
	ret
	end	behind_loads

	begin	behind_refused_nop
	cs nopw	0(%rax,%rax,1)
probe_behind_refused_nop:
	push	%rbx
	pop	%rbx
	ret
	end	behind_refused_nop

	begin	stack_first
	sub	$8, %rsp
	call	push_first
	add	$8, %rsp
	ret
	end	stack_first

	begin	endbr64_then_stack
	endbr64
	sub	$8, %rsp
	call	push_first
	add	$8, %rsp
	ret
	end	endbr64_then_stack

	.irp	register, edi, esi, edx, ecx, r8d, r9d
	begin	writes_\register
	mov	$0, %\register
	push	%rbx
	pop	%rbx
	ret
	end	writes_\register
	.endr

	begin	writes_half_of_rdx
	mov	$1, %dh
	push	%rbx
	pop	%rbx
	ret
	end	writes_half_of_rdx

	begin	writes_rcx_unseen
	rep stosb
	push	%rbx
	pop	%rbx
	ret
	end	writes_rcx_unseen

	begin	writes_frame_pointer
	mov	%rsp, %rbp
	push	%rbx
	pop	%rbx
	ret
	end	writes_frame_pointer

	begin	writes_memory
	movl	$0, (%rdi)
	push	%rbx
	pop	%rbx
	ret
	end	writes_memory

	begin	swaps_memory
	xchg	%rax, (%rdi)
	push	%rbx
	pop	%rbx
	ret
	end	swaps_memory

	begin	enters_kernel
	mov	$39, %eax
	syscall
	push	%rbx
	pop	%rbx
	ret
	end	enters_kernel

	begin	loop_to_the_probe
	xor	%eax, %eax
1:	nop
	inc	%eax
	cmp	$4, %eax
	jne	1b
	ret
	end	loop_to_the_probe

	begin	loop_into_the_skipped
	xor	%eax, %eax
1:	add	$1, %eax
	cmp	$4, %eax
	jb	1b
	ret
	end	loop_into_the_skipped

	begin	loop_behind_the_probe
	xor	%eax, %eax
probe_loop_behind_the_probe:
	push	%rbx
1:	add	$1, %eax
	cmp	$4, %eax
	jb	1b
	pop	%rbx
	ret
	end	loop_behind_the_probe

	begin	switch_into_the_skipped
	mov	$7, %eax
2:	cmp	$2, %edi
	ja	1f
	lea	3f(%rip), %rdx
	mov	%edi, %edi
	movslq	(%rdx,%rdi,4), %rax
	add	%rdx, %rax
	jmp	*%rax
1:	ret
	end	switch_into_the_skipped
	.section .rodata
	.balign	4
3:	.long	1b - 3b, 2b - 3b, 1b - 3b
	.text

	begin	cold_part_into_the_skipped
	mov	lock_word(%rip), %eax
1:	test	%eax, %eax
	jne	cold_part_into_the_skipped.cold
	ret
	end	cold_part_into_the_skipped
	.section .text.unlikely, "ax"
	.type	cold_part_into_the_skipped.cold, @function
cold_part_into_the_skipped.cold:
	.cfi_startproc
	pause
	mov	$0, %eax
	jmp	1b
	.cfi_endproc
	.size	cold_part_into_the_skipped.cold, . - cold_part_into_the_skipped.cold
	.text

	begin	lock_first
	lock incl (%rdi)
	ret
	end	lock_first

	begin	trap_first
	int3
	ret
	end	trap_first

	begin	data_first
	.byte	0x06, 0x06
	end	data_first

/* Nothing is proven where the body cannot be decoded; endbr64 before a push needs no proof. */
	begin	push_in_unknown_body
	endbr64
probe_push_in_unknown_body:
	push	%rbx
	.byte	0x06
	end	push_in_unknown_body

	begin	jump_in_unknown_body
	endbr64
	jne	1f
	.byte	0x06
1:	ret
	end	jump_in_unknown_body

	begin	load_in_unknown_body
	mov	(%rdi), %rax
	push	%rbx
	.byte	0x06
	end	load_in_unknown_body

	begin	cut_off
	mov	(%rdi), %rax
	push	%rbx
	mov	$0x12345678, %ebx
	.cfi_endproc
	.size	cut_off, . - cut_off - 2
	pop	%rbx
	ret

	begin	into_an_instruction
	mov	(%rdi), %rax
	push	%rbx
	jmp	. + 3
	mov	$0x12345678, %ebx
	pop	%rbx
	ret
	end	into_an_instruction

	begin	unsized_push
	endbr64
probe_unsized_push:
	push	%rbx
	pop	%rbx
	ret
	.cfi_endproc

	begin	unsized_jump
	endbr64
	je	1f
	nop
1:	ret
	.cfi_endproc

	begin	unsized_load
	mov	(%rdi), %rax
	push	%rbx
	pop	%rbx
	ret
	.cfi_endproc

/* ---- functions that are one jump ---- */

	begin	thunk
	jmp	push_first_local
	end	thunk

	begin	thunk_behind_endbr64
	endbr64
probe_thunk_behind_endbr64:
	jmp	push_first_local
	end	thunk_behind_endbr64

	begin	thunk_through_plt
	jmp	push_first@PLT
	end	thunk_through_plt

	begin	thunk_through_got
	jmp	*push_first@GOTPCREL(%rip)
	end	thunk_through_got

	begin	thunk_to_elsewhere
	jmp	getpid@PLT
	end	thunk_to_elsewhere

	begin	no_thunk
	jmp	1f
	nop
1:	ret
	end	no_thunk

	.type	push_first_local, @function
push_first_local:
	.cfi_startproc
	push	%rbp
	pop	%rbp
	ret
	.cfi_endproc
	.size	push_first_local, . - push_first_local

/* ---- how they are left ---- */

	begin	returns
	push	%rbx
	test	%edi, %edi
	je	1f
	pop	%rbx
	return	returns, 1
1:	pop	%rbx
exit_returns_2:
	ret	$8
	end	returns

	begin	tail_calls
	push	%rbx
	pop	%rbx
	test	%edi, %edi
exit_tail_calls_1_cc4:
	je	push_first_local
exit_tail_calls_2_cc15:
	jg	push_first@PLT
	cmp	$2, %edi
	jl	1f
exit_tail_calls_3:
	jmp	getpid@PLT
1:
exit_tail_calls_4:
	jmp	push_first_local
	end	tail_calls

	begin	pointer_calls
	push	%rbx
	mov	(%rdi), %rax
	cmp	$1, %esi
	je	1f
	cmp	$2, %esi
	je	2f
	cmp	$3, %esi
	je	3f
	pop	%rbx
exit_pointer_calls_1:
	jmp	*16(%rax)
	.p2align 4
1:	mov	24(%rax), %rax
	pop	%rbx
exit_pointer_calls_2:
	jmp	*%rax
	.p2align 4
2:	pop	%rbx
exit_pointer_calls_3:
	jmp	*%rdx
	.p2align 4
3:	call	getpid@PLT
	pop	%rbx
exit_pointer_calls_4:
	jmp	*%rax
	end	pointer_calls

	begin	switches
	push	%rbx
	cmp	$2, %edi
	ja	1f
	lea	9f(%rip), %rdx
	mov	%edi, %edi
	movslq	(%rdx,%rdi,4), %rax
	add	%rdx, %rax
	notrack jmp *%rax
1:	pop	%rbx
	return	switches, 1
2:	pop	%rbx
	return	switches, 2
3:	cmpb	$1, 8(%rsi)
	ja	1b
	movzbl	8(%rsi), %eax
	lea	8f(%rip), %rcx
	movslq	(%rcx,%rax,4), %rax
	add	%rcx, %rax
	jmp	*%rax
4:	mov	(%rsi), %rax
	pop	%rbx
exit_switches_3:
	jmp	*%rax
	end	switches
	.section .rodata
	.balign	4
9:	.long	1b - 9b, 2b - 9b, 3b - 9b
8:	.long	4b - 8b, 2b - 8b
	.text

	begin	cold_part
	push	%rbx
	test	%edi, %edi
	jne	2f
1:	pop	%rbx
	return	cold_part, 3
	end	cold_part
	.section .text.unlikely
	.type	cold_part.cold, @function
cold_part.cold:
	.cfi_startproc
	nop
2:	cmp	$1, %edi
	je	1b
	pop	%rbx
	cmp	$2, %edi
exit_cold_part_1_cc5:
	jne	push_first@PLT
	return	cold_part, 2
	.cfi_endproc
	.size	cold_part.cold, . - cold_part.cold
	.text

	begin	again_from_the_beginning
	test	%edi, %edi
	je	1f
	dec	%edi
exit_again_from_the_beginning_1:
	jmp	again_from_the_beginning
1:
	return	again_from_the_beginning, 2
	end	again_from_the_beginning

	begin	never_returns
	push	%rbx
	call	abort@PLT
	nop
	end	never_returns

	begin	check_is_passed_by
	push	%rbx
	test	%esi, %esi
	je	1f
	cmp	$1, %edi
	ja	2f
1:	lea	9f(%rip), %rdx
	movslq	(%rdx,%rdi,4), %rax
	add	%rdx, %rax
	jmp	*%rax
2:	pop	%rbx
	ret
	end	check_is_passed_by
	.section .rodata
	.balign	4
9:	.long	2b - 9b, 2b - 9b
	.text

	begin	nothing_checked
	push	%rbx
	lea	9f(%rip), %rdx
	movslq	(%rdx,%rdi,4), %rax
	add	%rdx, %rax
	jmp	*%rax
2:	pop	%rbx
	ret
	end	nothing_checked

	begin	two_tables
	push	%rbx
	lea	9f(%rip), %rdx
	test	%esi, %esi
	je	1f
	lea	8f(%rip), %rdx
1:	cmp	$1, %edi
	ja	2f
	movslq	(%rdx,%rdi,4), %rax
	add	%rdx, %rax
	jmp	*%rax
2:	pop	%rbx
	ret
	end	two_tables
	.section .rodata
	.balign	4
9:	.long	2b - 9b, 2b - 9b
8:	.long	2b - 8b, 2b - 8b
	.text

	begin	table_leads_astray
	push	%rbx
	cmp	$1, %edi
	ja	2f
	lea	9f(%rip), %rdx
	movslq	(%rdx,%rdi,4), %rax
	add	%rdx, %rax
	jmp	*%rax
2:	pop	%rbx
	ret
	end	table_leads_astray
	.section .rodata
	.balign	4
9:	.long	2b - 9b, 2b - 1 - 9b
	.text

	begin	computed_jump
	push	%rbx
	mov	(%rsi,%rdi,8), %rax
	jmp	*%rax
	pop	%rbx
	ret
	end	computed_jump

	begin	label_in_a_register
	push	%rbx
	lea	1f(%rip), %rax
	test	%edi, %edi
	je	1f
	jmp	*%rax
1:	pop	%rbx
	ret
	end	label_in_a_register

/* Reached by an exception only: the code that the table of exceptions names lies elsewhere. */
	begin	landing_pad
	.cfi_lsda 0x1b, 7f
	push	%rbx
	call	push_first
	pop	%rbx
	return	landing_pad, 2
	end	landing_pad
	.section .text.unlikely
	.type	landing_pad.cold, @function
landing_pad.cold:
	.cfi_startproc
8:	mov	%rax, %rdi
	pop	%rbx
	return	landing_pad, 1
	.cfi_endproc
	.size	landing_pad.cold, . - landing_pad.cold
	.section .gcc_except_table, "a"
7:	.byte	0x1b
	.long	8b - 1 - .
	.byte	0xff, 0x01
	.uleb128 2f - 1f
1:	.uleb128 0
	.uleb128 6
	.uleb128 1
	.uleb128 0
2:
	.text

	begin	pointer_from_an_exception
	.cfi_lsda 0x1b, 7f
	push	%rbx
	call	push_first
	mov	(%rbx), %rax
1:	jmp	*%rax
	end	pointer_from_an_exception
	.section .gcc_except_table
7:	.byte	0xff, 0xff, 0x01
	.uleb128 4
	.uleb128 0
	.uleb128 6
	.uleb128 1b - pointer_from_an_exception
	.uleb128 0
	.text

	begin	case_into_a_pointer_jump
	push	%rbx
	cmp	$1, %edi
	ja	1f
	lea	9f(%rip), %rdx
	mov	%edi, %edi
	movslq	(%rdx,%rdi,4), %rax
	add	%rdx, %rax
	jmp	*%rax
1:	mov	(%rsi), %rax
2:	jmp	*%rax
	end	case_into_a_pointer_jump
	.section .rodata
	.balign	4
9:	.long	1b - 9b, 2b - 9b
	.text

	begin	returns_at_once
	ret
	end	returns_at_once

	begin	runs_on
	push	%rbx
	test	%edi, %edi
	je	1f
	ret
1:	pop	%rbx
	end	runs_on
	ret

	begin	leaves_on_a_count
	push	%rbx
	pop	%rbx
	jrcxz	near_function
	ret
	end	leaves_on_a_count

	begin	near_function
	push	%rbx
	pop	%rbx
	ret
	end	near_function

	begin	leaves_for_undescribed_code
	push	%rbx
	pop	%rbx
	jmp	.Lundescribed_code
	end	leaves_for_undescribed_code
	.balign	16
.Lundescribed_code:
	ret

	begin	leaves_for_data
	push	%rbx
	pop	%rbx
	jmp	lock_word
	end	leaves_for_data

	begin	many_returns
	push	%rbx
	.rept	513
	ret
	.endr
	end	many_returns

	begin	too_long
	push	%rbx
	.zero	256 << 10, 0x90
	ret
	end	too_long

	.section .rodata
lock_word:
	.long	0
	.section .note.GNU-stack, "", @progbits
