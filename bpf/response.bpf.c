// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only)
/* Responses: when processes that serve HTTP/1 read requests and write each part of their answers. Only the first and
 * last bytes of a part are compared, and none is stored. Loaded where requests are observed. */
#include "bpf/call_state.bpf.h"
#include "bpf/emit.bpf.h"

#define PIDTYPE_SID 3
#define AF_INET 2
#define AF_INET6 10
#define IPPROTO_TCP 6
#define MSG_PEEK 2
#define TCP_FIN_WAIT1 4
#define TCP_CLOSE 7
#define TCP_LAST_ACK 9
#define SYSCALL_WRITE 1
#define SYSCALL_WRITEV 20
#define SYSCALL_SENDTO 44
#define SYSCALL_SENDMSG 46
#define VERSION 0x2e312f50545448ull /* "HTTP/1.", in the order of x86 */
#define VERSION_MASK 0xffffffffffffffull
#define CLASS_AT 9 /* of the status: "HTTP/1.1 200" */
#define LAST_BYTES 6
#define LAST_CHUNK 0x0a0d0a0d300aull /* "\n0\r\n\r\n" */
#define EMPTY_LINE 0x0a0d0a0dull     /* "\r\n\r\n" */

struct sock_common {
	unsigned short skc_family;
} __attribute__((preserve_access_index));

struct sock {
	struct sock_common __sk_common;
	__u16 sk_protocol;
} __attribute__((preserve_access_index));

/* As user space has them: struct iovec and the first fields of struct msghdr. */
struct piece {
	__u64 address;
	__u64 bytes;
};

struct message {
	__u64 name[2];
	__u64 pieces;
	__u64 piece_count;
};

/* The first and the last piece of what is written; addresses are 0 where they are not told. */
struct edges {
	struct piece first;
	struct piece last;
};

static __always_inline __u32 get_session(void)
{
	return BPF_CORE_READ(bpf_get_current_task_btf(), signal, pids[PIDTYPE_SID], numbers[0].nr);
}

static __always_inline _Bool is_served(__u32 session)
{
	return bpf_map_lookup_elem(&request_sessions, &session) != NULL;
}

static __always_inline _Bool is_tcp(const struct sock *sk)
{
	__u16 family = sk->__sk_common.skc_family;

	return (family == AF_INET || family == AF_INET6) && sk->sk_protocol == IPPROTO_TCP;
}

static __always_inline struct edges find_edges_of(__u64 pieces, __u64 count)
{
	__u64 last_at = pieces + (count - 1) * sizeof(struct piece);
	struct edges edges = {};

	if (!count || bpf_probe_read_user(&edges.first, sizeof(edges.first), (void *)pieces) ||
	    bpf_probe_read_user(&edges.last, sizeof(edges.last), (void *)last_at))
		return (struct edges){};
	return edges;
}

/* Of the system call that the thread is in. */
static __always_inline struct edges find_edges(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	const struct pt_regs *regs = (const void *)bpf_task_pt_regs(task);
	struct message message = {};
	struct piece all = {};

	switch (syscall_of(task)) {
	case SYSCALL_WRITE:
	case SYSCALL_SENDTO:
		all.address = regs->rsi;
		all.bytes = regs->rdx;
		return (struct edges){all, all};
	case SYSCALL_WRITEV:
		return find_edges_of(regs->rsi, regs->rdx);
	case SYSCALL_SENDMSG:
		if (bpf_probe_read_user(&message, sizeof(message), (void *)regs->rsi))
			return (struct edges){};
		return find_edges_of(message.pieces, message.piece_count);
	}
	return (struct edges){}; /* sendfile, io_uring */
}

/* Answers of class 1 ("100 Continue") are not the answer. */
static __always_inline _Bool begins_response(const struct piece *first)
{
	__u64 text[2] = {};

	return first->bytes > CLASS_AT && !bpf_probe_read_user(text, CLASS_AT + 1, (void *)first->address) &&
	       (text[0] & VERSION_MASK) == VERSION && ((const char *)text)[CLASS_AT] != '1';
}

static __always_inline __u32 read_end(const struct piece *last)
{
	__u64 end = last->address + last->bytes;
	__u64 text = '\n'; /* before a chunk in a piece of its own */

	if (last->bytes < LAST_BYTES - 1)
		return 0;
	if (last->bytes < LAST_BYTES ?
		    bpf_probe_read_user((char *)&text + 1, LAST_BYTES - 1, (void *)(end - LAST_BYTES + 1)) :
		    bpf_probe_read_user(&text, LAST_BYTES, (void *)(end - LAST_BYTES)))
		return 0;
	if (text == LAST_CHUNK)
		return GPUPERF_RESPONSE_ENDS;
	return text >> 16 == EMPTY_LINE ? GPUPERF_RESPONSE_HEAD : 0;
}

static __always_inline void send_part(struct gpuperf_response_part *part)
{
	part->header.kind = GPUPERF_RECORD_RESPONSE_PART;
	part->header.length_bytes = sizeof(*part);
	part->mono_ns = bpf_ktime_get_ns();
	if (report_ring_has_room() &&
	    !bpf_ringbuf_output(&report_ring, part, sizeof(*part), emit_wake_flags(part->mono_ns)))
		return;
	emit_loss(GPUPERF_LOSS_RESPONSES_FULL);
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(read_request, struct sock *sk, int bytes, int flags)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct gpuperf_connection fresh = {}, *connection;
	__u64 key = (__u64)sk, now_ns;

	if (bytes <= 0 || flags & MSG_PEEK || !is_tcp(sk) || !is_served(get_session()))
		return 0;
	now_ns = bpf_ktime_get_ns();
	connection = bpf_map_lookup_elem(&connections, &key);
	if (!connection) {
		fresh.process_start_boot_ns = task->group_leader->start_boottime;
		fresh.pid = task->tgid;
		fresh.is_read = 1;
		fresh.read_start_mono_ns = fresh.read_end_mono_ns = now_ns;
		if (bpf_map_update_elem(&connections, &key, &fresh, BPF_NOEXIST))
			emit_loss(GPUPERF_LOSS_RESPONSES_FULL);
		return 0;
	}
	if (!connection->is_read)
		connection->read_start_mono_ns = now_ns;
	connection->is_read = 1;
	connection->read_end_mono_ns = now_ns;
	return 0;
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(write_response, struct sock *sk, int bytes)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct gpuperf_response_part part = {};
	struct gpuperf_connection *connection;
	__u64 key = (__u64)sk;
	struct edges edges;

	if (bytes <= 0 || !is_tcp(sk))
		return 0;
	part.session = get_session();
	if (!is_served(part.session))
		return 0;
	connection = bpf_map_lookup_elem(&connections, &key);
	if (!connection)
		return 0; /* who writes first is no server */
	edges = find_edges();
	if (connection->is_read && begins_response(&edges.first)) {
		part.flags = GPUPERF_RESPONSE_BEGINS;
		part.request_start_mono_ns = connection->read_start_mono_ns;
		part.request_end_mono_ns = connection->read_end_mono_ns;
		connection->is_read = 0;
		connection->is_answering = 1;
	} else if (!connection->is_answering) {
		return 0;
	}
	part.flags |= read_end(&edges.last);
	if (!(part.flags & GPUPERF_RESPONSE_BEGINS))
		part.flags &= ~GPUPERF_RESPONSE_HEAD;
	if (part.flags & GPUPERF_RESPONSE_ENDS)
		connection->is_answering = 0;
	part.process_start_boot_ns = task->group_leader->start_boottime;
	part.connection = key;
	part.bytes = bytes;
	part.pid = task->tgid;
	part.tid = task->pid;
	send_part(&part);
	return 0;
}

/* In whatever thread, or in an interrupt. */
SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(close_connection, const struct sock *sk, int old_state, int new_state)
{
	struct gpuperf_response_part part = {};
	struct gpuperf_connection *connection;
	__u64 key = (__u64)sk;

	if (new_state != TCP_FIN_WAIT1 && new_state != TCP_LAST_ACK && new_state != TCP_CLOSE)
		return 0;
	connection = bpf_map_lookup_elem(&connections, &key);
	if (!connection)
		return 0;
	part.process_start_boot_ns = connection->process_start_boot_ns;
	part.connection = key;
	part.pid = connection->pid;
	part.flags = GPUPERF_RESPONSE_CLOSED;
	if (connection->is_answering)
		send_part(&part);
	bpf_map_delete_elem(&connections, &key);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
