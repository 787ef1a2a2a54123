/* Takes stack_cost's linked BPF object in, as bpf/objects.S does. */
	.section .rodata
	.balign 16
	.global stack_cost_bpf_begin
stack_cost_bpf_begin:
	.incbin "stack_cost.bpf.o"
	.global stack_cost_bpf_end
stack_cost_bpf_end:
	.section .note.GNU-stack,"",@progbits
