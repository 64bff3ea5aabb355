// RUN: ffd-opt %s --verify-diagnostics --split-input-file

// shared_c1
func.func @shared_c1() {
  // expected-error @below {{'ffd.gpu.shared' op attribute 'offset' is 6, expected a multiple of 4 from 0 (shared_c1)}}
  %p = ffd.gpu.shared 6 : !llvm.ptr<3>
  return
}

// -----

func.func @wrong_space() {
  // expected-error @below {{result #0 must be pointer to shared memory (!llvm.ptr<3>), but got '!llvm.ptr<1>'}}
  %p = ffd.gpu.shared 4 : !llvm.ptr<1>
  return
}

// -----

// ring_c1
func.func @ring_c1(%bar: !llvm.ptr<3>) {
  // expected-error @below {{'ffd.gpu.ring.init' op attribute 'count' is 0, expected at least 1 (ring_c1)}}
  ffd.gpu.ring.init bulk %bar count 0 : !llvm.ptr<3>
  return
}

// -----

// ring_c2
func.func @ring_c2_count(%p: !llvm.ptr<3>, %g: !llvm.ptr<1>, %c: i1) {
  // expected-error @below {{'ffd.gpu.ring.fill' op has 1 copies and 2 sizes (ring_c2)}}
  ffd.gpu.ring.fill bulk %p if %c copy %p from %g sizes [16, 16] : !llvm.ptr<3> copy !llvm.ptr<3> from !llvm.ptr<1>
  return
}

// -----

// ring_c2
func.func @ring_c2_size(%p: !llvm.ptr<3>, %g: !llvm.ptr<1>, %c: i1) {
  // expected-error @below {{'ffd.gpu.ring.fill' op has a copy of 24 bytes, expected a positive multiple of 16 (ring_c2)}}
  ffd.gpu.ring.fill bulk %p if %c copy %p from %g sizes [24] : !llvm.ptr<3> copy !llvm.ptr<3> from !llvm.ptr<1>
  return
}

// -----

// ring_c3
func.func @ring_c3(%p: !llvm.ptr<3>, %i: i32) {
  // expected-error @below {{'ffd.gpu.ring.wait' op attribute 'pending' is -1, expected at least 0 (ring_c3)}}
  ffd.gpu.ring.wait async %p parity %i pending -1 : !llvm.ptr<3>
  return
}

// -----

// fragment_c1
func.func @fragment_c1(%q: vector<16xi32>, %s: vector<12xi32>, %f: f32) {
  // expected-error @below {{'ffd.gpu.quantize_query' op 'smax' has 12 entries, expected 16 (fragment_c1)}}
  %qh, %e, %u, %bad, %k = ffd.gpu.quantize_query %q, %s scale %f elements f16
      : (vector<16xi32>, vector<12xi32>, f32) -> (vector<16xi32>, i32, f32, i1, f32)
  return
}

// -----

// fragment_c1
func.func @fragment_c1_words(%q: vector<6xi32>) {
  // expected-error @below {{'ffd.gpu.scale_query' op 'query' has 6 words, expected four per channel group (fragment_c1)}}
  %qs, %k = ffd.gpu.scale_query %q, %q elements f16
      : (vector<6xi32>, vector<6xi32>) -> (vector<6xi32>, f32)
  return
}

// -----

// spec_c3
func.func @spec_c3(%q: vector<8xi32>) {
  // expected-error @below {{'ffd.gpu.scale_query' op attribute 'element' is 'f32', expected f16 or bf16 (spec_c3)}}
  %qs, %k = ffd.gpu.scale_query %q, %q elements f32
      : (vector<8xi32>, vector<8xi32>) -> (vector<8xi32>, f32)
  return
}

// -----

// fold_c1
func.func @fold_c1(%q: vector<8xi32>, %e: i32) {
  // expected-error @below {{'ffd.gpu.fold' op 'result' has 8 entries, expected 4 (fold_c1)}}
  %b = ffd.gpu.fold %q, %q factor %e : (vector<8xi32>, vector<8xi32>, i32) -> vector<8xi32>
  return
}

// -----

// scan_o1
func.func @scan_o1(%b: vector<8xi32>) {
  // expected-error @below {{'ffd.gpu.centre' op attribute 'bits' is 3, expected 2, 4 or 8 (scan_o1)}}
  %z = ffd.gpu.centre %b bits 3 : vector<8xi32>
  return
}

// -----

// fold_c1
func.func @fold_high(%q: vector<8xi32>, %s: vector<4xi32>, %e: i32) {
  // expected-error @below {{'ffd.gpu.fold_high' op 'scales' has 4 entries, expected 8 (fold_c1)}}
  %b = ffd.gpu.fold_high %q, %s factor %e : (vector<8xi32>, vector<4xi32>, i32) -> vector<4xi32>
  return
}

// -----

// square_sum_c1
func.func @square_sum(%b: vector<7xi32>) {
  // expected-error @below {{'ffd.gpu.square_sum' op operand 'folded' has 7 words, expected two per channel group (square_sum_c1)}}
  %z = ffd.gpu.square_sum %b : vector<7xi32>
  return
}

// -----

// centre_high_c1
func.func @centre_high(%b: vector<8xi32>) {
  // expected-error @below {{'ffd.gpu.centre_high' op 'result' has 4 entries, expected 2 (centre_high_c1)}}
  %z = ffd.gpu.centre_high %b bits 2 : vector<8xi32> -> vector<4xi32>
  return
}

// -----

// scan_o2
func.func @screen_tile(%c: vector<4xi32>, %b: vector<8xi32>, %s: vector<4xi32>) {
  // expected-error @below {{'ffd.gpu.screen_tile' op 'starts' has 4 entries, expected 2 (scan_o2)}}
  %a = ffd.gpu.screen_tile %c, %b start %s bits 2 : (vector<4xi32>, vector<8xi32>, vector<4xi32>) -> vector<4xi32>
  return
}

// -----

// scan_o2
func.func @screen_result(%c: vector<4xi32>, %b: vector<8xi32>, %s: vector<2xi32>) {
  // expected-error @below {{'ffd.gpu.screen_tile' op 'result' has 2 entries, expected 4 (scan_o2)}}
  %a = ffd.gpu.screen_tile %c, %b start %s bits 2 : (vector<4xi32>, vector<8xi32>, vector<2xi32>) -> vector<2xi32>
  return
}

// -----

// scan_o2
func.func @scan_o2(%c: vector<4xi32>, %b: vector<6xi32>, %s: i32) {
  // expected-error @below {{'ffd.gpu.scan_tile' op 'folded' has 6 entries, expected 8 (scan_o2)}}
  %a = ffd.gpu.scan_tile %c, %b start %s bits 2 : (vector<4xi32>, vector<6xi32>, i32) -> vector<2xi32>
  return
}

// -----

// keep_c1
func.func @keep_c1(%n: i32) {
  // expected-error @below {{'ffd.gpu.keep_mask' op attribute 'select_block' is 48, expected 16, 32, 64 or 128 (keep_c1)}}
  %m = ffd.gpu.keep_mask %n select 48
  return
}

// -----

// dot_c1
func.func @dot_c1(%k: vector<16xi32>, %q: vector<16xi32>) {
  // expected-error @below {{'ffd.gpu.dot_tile' op 'keys' has 16 entries, expected 32 (dot_c1)}}
  %f = ffd.gpu.dot_tile %k, %q elements f16 : (vector<16xi32>, vector<16xi32>) -> vector<4xf32>
  return
}

// -----

// queue_c1
func.func @queue_c1(%p: !llvm.ptr<3>) {
  // expected-error @below {{'ffd.gpu.queue.take' op attribute 'warps' is 6, expected 4, 8 or 16 (queue_c1)}}
  %b, %e = ffd.gpu.queue.take %p, %p warps 6 : !llvm.ptr<3>, !llvm.ptr<3>
  return
}

// -----

// refine_c1
func.func @refine_c1(%c: vector<4xi32>, %r: vector<16xi32>) {
  // expected-error @below {{'ffd.gpu.refine_tile' op 'codes' has 4 entries, expected 8 (refine_c1)}}
  %f = ffd.gpu.refine_tile %c, %r, %r, %r bits 4 elements f16
      : (vector<4xi32>, vector<16xi32>, vector<16xi32>, vector<16xi32>) -> vector<4xf32>
  return
}

// -----

// softmax_c1
func.func @softmax_c1(%s: vector<4xf32>, %m: vector<2xf32>, %o: vector<6xf32>) {
  // expected-error @below {{'ffd.gpu.softmax_step' op 'output' has 6 floats, expected a multiple of 4 (softmax_c1)}}
  %p, %m1, %l1, %o1 = ffd.gpu.softmax_step %s, %m, %m, %o elements f16
      : (vector<4xf32>, vector<2xf32>, vector<2xf32>, vector<6xf32>)
      -> (vector<2xi32>, vector<2xf32>, vector<2xf32>, vector<6xf32>)
  return
}

// -----

// accumulate_c1
func.func @accumulate_c1(%o: vector<8xf32>, %v: vector<4xi32>, %p: vector<2xi32>) {
  // expected-error @below {{'ffd.gpu.accumulate' op 'values' has 4 entries, expected 8 (accumulate_c1)}}
  %o1 = ffd.gpu.accumulate %o, %v, %p elements f16
      : (vector<8xf32>, vector<4xi32>, vector<2xi32>) -> vector<8xf32>
  return
}

// -----

func.func @load_if_words(%c: i1, %p: !llvm.ptr<1>) {
  // expected-error @+1 {{'words' has 3 entries, expected 1, 2 or 4 (load_c1)}}
  %w = ffd.gpu.load_if %c, %p : !llvm.ptr<1> -> vector<3xi32>
  return
}
