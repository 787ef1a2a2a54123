/* Takes the linked BPF objects in as they are, so that nothing has to be found at run time. */
	.macro object name, file
	.balign 16
	.global \name\()_begin
\name\()_begin:
	.incbin "\file"
	.global \name\()_end
\name\()_end:
	.endm

	.section .rodata
	object gpuperf_bpf_plain, "gpuperf_0.bpf.o"
	object gpuperf_bpf_session, "gpuperf_1.bpf.o"
	object gpuperf_bpf_session_ctx, "gpuperf_2.bpf.o"
	.section .note.GNU-stack,"",@progbits
