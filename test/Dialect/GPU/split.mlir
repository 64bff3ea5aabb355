// RUN: ffd-opt %s --verify-diagnostics --split-input-file

func.func @maxima(%k: vector<12xi32>) {
  // expected-error @below {{'ffd.gpu.key_maxima' op 'keys' has 12 words, expected eight per channel group (split_tile_c1)}}
  %m = ffd.gpu.key_maxima %k : (vector<12xi32>) -> vector<12xi32>
  return
}

// -----

func.func @scale(%a: i32) {
  // expected-error @below {{'ffd.gpu.split_scale' op attribute 'bits' is 3, expected 2, 4 or 8 (scan_o1)}}
  %s, %f = ffd.gpu.split_scale %a bits 3 elements f16 : i32, f32
  return
}

// -----

func.func @scale_element(%a: i32) {
  // expected-error @below {{'ffd.gpu.split_scale' op attribute 'element' is 'f32', expected f16 or bf16 (spec_c3)}}
  %s, %f = ffd.gpu.split_scale %a bits 2 elements f32 : i32, f32
  return
}

// -----

func.func @codes(%k: vector<16xi32>, %f: vector<16xf32>) {
  // expected-error @below {{'ffd.gpu.split_tile' op 'codes' has 4 entries, expected 2 (split_tile_c1)}}
  %c, %r = ffd.gpu.split_tile %k, %f bits 2 elements f16 : (vector<16xi32>, vector<16xf32>) -> (vector<4xi32>, vector<8xi32>)
  return
}

// -----

func.func @factors(%k: vector<16xi32>, %f: vector<8xf32>) {
  // expected-error @below {{'ffd.gpu.split_tile' op 'factors' has 8 entries, expected 16 (split_tile_c1)}}
  %c, %r = ffd.gpu.split_tile %k, %f bits 4 elements bf16 : (vector<16xi32>, vector<8xf32>) -> (vector<4xi32>, vector<8xi32>)
  return
}
