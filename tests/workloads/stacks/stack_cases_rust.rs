// A Rust program that knows its own stacks; it prints what stack_cases does (walk.h). Generics,
// closures, trait objects, the standard library's sort in the middle, and panics that are caught.
//
// usage: stack_cases_rust [--samples N] [--pause-us N] [--target-us N] [--wait-for-file PATH]
//                         [--linger-for-file PATH]
// as those of stack_cases, whose other options it takes and does not use.

use std::cell::RefCell;
use std::hint::black_box;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::path::Path;
use std::time::Duration;

extern "C" {
    fn stack_target(sample: u64) -> u64;
    fn set_stack_target_ns(duration_ns: u64);
    fn read_own_stack(addresses: *mut usize, capacity: usize) -> usize;
}

const MAX_ADDRESSES: usize = 256;
const MAX_STEPS: u64 = 12;

thread_local! {
    static SHADOW: RefCell<Vec<&'static str>> = RefCell::new(Vec::new());
}

// One entry of the shadow stack, from a function's entry to its exit.
struct Frame;

impl Frame {
    #[inline(always)]
    fn new(name: &'static str) -> Frame {
        SHADOW.with(|shadow| shadow.borrow_mut().push(name));
        Frame
    }
}

impl Drop for Frame {
    #[inline(always)]
    fn drop(&mut self) {
        SHADOW.with(|shadow| shadow.borrow_mut().pop());
    }
}

struct Walk {
    sample: u64,
    random: u64,
    steps_left: u64,
    bias: usize,
    program: String,
    start: Vec<usize>, // the frames around main
}

impl Walk {
    fn next_random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random >> 11
    }
}

// Both are inlined into the function whose step it is.
#[inline(always)]
fn take_step(walk: &mut Walk) -> u64 {
    if walk.steps_left == 0 {
        print_own_stack(walk);
        return unsafe { stack_target(walk.sample) };
    }
    walk.steps_left -= 1;
    const STEPS: [fn(&mut Walk) -> u64; 6] =
        [small_frame, large_frame, in_generic, in_sort, in_catch, in_trait_object];
    STEPS[(walk.next_random() % 6) as usize](walk)
}

#[inline(never)]
fn read_addresses() -> Vec<usize> {
    let mut addresses = vec![0usize; MAX_ADDRESSES];
    let count = unsafe { read_own_stack(addresses.as_mut_ptr(), MAX_ADDRESSES) };
    addresses.truncate(count);
    addresses.remove(0); // this function
    addresses
}

#[inline(never)]
fn print_own_stack(walk: &Walk) {
    let mut addresses = read_addresses();
    addresses.remove(0); // this function
    let mut frames = SHADOW.with(|shadow| shadow.borrow().clone());
    frames.reverse();
    println!(
        "{{\"sample\":{},\"pid\":{},\"frames\":{:?},\"addresses\":{:?},\"start\":{:?},\
         \"modules\":[{{\"path\":{:?},\"bias\":{},\"symbols\":{:?}}}]}}",
        walk.sample, std::process::id(), frames, addresses, walk.start, walk.program, walk.bias,
        walk.program
    );
}

#[inline(never)]
fn small_frame(walk: &mut Walk) -> u64 {
    let _frame = Frame::new("small_frame");
    take_step(walk) + 1
}

#[inline(never)]
fn large_frame(walk: &mut Walk) -> u64 {
    let _frame = Frame::new("large_frame");
    let mut memory = [0u8; 9000];
    black_box(&mut memory);
    take_step(walk) + memory[(walk.sample % 9000) as usize] as u64
}

#[inline(never)]
fn apply<T: Fn(&mut Walk) -> u64>(walk: &mut Walk, function: T) -> u64 {
    let _frame = Frame::new("apply");
    function(walk) + 1
}

#[inline(never)]
fn in_generic(walk: &mut Walk) -> u64 {
    let _frame = Frame::new("in_generic");
    apply(walk, small_frame) + 1
}

#[inline(never)]
fn compare(walk: &mut Walk, went_on: &mut bool, a: u64, b: u64) -> std::cmp::Ordering {
    let _frame = Frame::new("compare");
    if !*went_on {
        *went_on = true;
        walk.random ^= take_step(walk) & 1;
    }
    a.cmp(&b)
}

// The standard library in the middle: its frames are not ours.
#[inline(never)]
fn in_sort(walk: &mut Walk) -> u64 {
    let _frame = Frame::new("in_sort");
    let mut numbers: Vec<u64> = (0..40).map(|_| walk.next_random()).collect();
    let mut went_on = false;
    numbers.sort_by(|a, b| compare(walk, &mut went_on, *a, *b));
    numbers[0]
}

// Walks on while a panic unwinds.
struct WalksOnAtDrop<'a> {
    walk: &'a mut Walk,
}

impl Drop for WalksOnAtDrop<'_> {
    #[inline(never)]
    fn drop(&mut self) {
        let _frame = Frame::new("drop");
        self.walk.random ^= take_step(self.walk) & 1;
    }
}

#[inline(never)]
fn unwind(walk: &mut Walk) {
    let _frame = Frame::new("unwind");
    let _cleanup = WalksOnAtDrop { walk };
    resume_unwind(Box::new(1));
}

#[inline(never)]
fn in_catch(walk: &mut Walk) -> u64 {
    let _frame = Frame::new("in_catch");
    catch_unwind(AssertUnwindSafe(|| unwind(walk))).is_err() as u64
}

trait Service {
    fn serve(&self, walk: &mut Walk) -> u64;
}

struct Kept(u64);

impl Service for Kept {
    #[inline(never)]
    fn serve(&self, walk: &mut Walk) -> u64 {
        let _frame = Frame::new("serve");
        take_step(walk) + self.0
    }
}

#[inline(never)]
fn in_trait_object(walk: &mut Walk) -> u64 {
    let _frame = Frame::new("in_trait_object");
    let service: Box<dyn Service> = Box::new(Kept(walk.sample));
    black_box(&service).serve(walk) + 1
}

fn read_option(name: &str, default: &str) -> String {
    let options: Vec<String> = std::env::args().collect();
    let value = options.iter().position(|option| option == name).map(|at| options[at + 1].clone());
    value.unwrap_or_else(|| default.to_string())
}

fn read_count(name: &str, default: u64) -> u64 {
    read_option(name, "").parse().unwrap_or(default)
}

fn exists(path: &str) -> bool {
    path.is_empty() || Path::new(path).exists()
}

// Where the program lies in memory: its first mapping is that of its first byte.
fn read_bias(program: &str) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| line.ends_with(program)).unwrap();
    usize::from_str_radix(line.split('-').next().unwrap(), 16).unwrap()
}

fn main() {
    let _frame = Frame::new("main");
    let samples = read_count("--samples", 100);
    let pause = Duration::from_micros(read_count("--pause-us", 2500));
    let program = std::fs::read_link("/proc/self/exe").unwrap().to_str().unwrap().to_string();
    unsafe { set_stack_target_ns(read_count("--target-us", 50) * 1000) };
    let mut walk = Walk {
        sample: 0,
        random: 1,
        steps_left: 0,
        bias: read_bias(&program),
        program,
        start: read_addresses().split_off(1),
    };
    while !exists(&read_option("--wait-for-file", "")) {
        unsafe { stack_target(0) };
        std::thread::sleep(Duration::from_millis(10));
    }
    for sample in 1..=samples {
        std::thread::sleep(pause);
        walk.sample = sample;
        walk.random = 0x9E3779B97F4A7C15 ^ (sample << 17) ^ sample;
        walk.steps_left = walk.next_random() % MAX_STEPS;
        black_box(small_frame(&mut walk));
    }
    while !exists(&read_option("--linger-for-file", "")) {
        std::thread::sleep(Duration::from_millis(1));
    }
}
