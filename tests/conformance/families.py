"""Which op_db entries are claimed: they must pass in every variant and dtype, or be listed in expected_failures.py.

An entry is the OpInfo's `formatted_name`. What is not here may work, but is not checked by `make test`; the coverage
page tells what is missing altogether, and which entries are not claimed and why (UNCLAIMED).
"""


def names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


FAMILIES: dict[str, tuple[str, ...]] = {
    "unary": names(
        """
        abs acos acosh angle asin asinh atan atanh ceil cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 fill
        floor frac isfinite isinf isnan isneginf isposinf lgamma log log10 log1p log2 logical_not logit nan_to_num neg
        positive rad2deg reciprocal round rsqrt sgn sigmoid sign signbit sin sinc sinh sqrt square tan tanh trunc zero_
        bitwise_not clamp clamp_max clamp_min conj conj_physical real imag isreal nn_functional_celu nn_functional_elu
        nn_functional_gelu nn_functional_glu nn_functional_hardshrink nn_functional_hardsigmoid nn_functional_hardswish
        nn_functional_hardtanh nn_functional_leaky_relu nn_functional_logsigmoid nn_functional_mish nn_functional_prelu
        nn_functional_relu nn_functional_relu6 nn_functional_selu nn_functional_silu nn_functional_softplus
        nn_functional_softshrink nn_functional_softsign nn_functional_tanhshrink nn_functional_threshold
        """
    ),
    "binary": names(
        """
        add sub mul div_no_rounding_mode div_trunc_rounding div_floor_rounding true_divide floor_divide remainder fmod
        pow float_power rsub __radd__ __rsub__ __rmul__ __rdiv__ __rmod__ __rpow__ __rand__ __ror__ __rxor__ maximum
        minimum max_binary min_binary fmax fmin atan2 hypot copysign heaviside nextafter logaddexp logaddexp2 xlogy eq
        ne lt le gt ge isclose equal logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor
        bitwise_left_shift bitwise_right_shift gcd lcm addcmul addcdiv lerp where masked_fill clone contiguous ldexp
        """
    ),
    "reductions": names(
        """
        sum mean prod amax amin aminmax max_reduction_with_dim max_reduction_no_dim min_reduction_with_dim
        min_reduction_no_dim argmax argmin any all var var_unbiased std std_unbiased var_mean var_mean_unbiased std_mean
        std_mean_unbiased norm norm_fro norm_inf linalg_vector_norm nansum nanmean count_nonzero logsumexp sum_to_size
        softmax softmax_with_dtype log_softmax log_softmax_with_dtype nn_functional_softmin
        nn_functional_softmin_with_dtype _softmax_backward_data cumsum cumprod
        """
    ),
    "products": names(
        """
        mm bmm addmm addmm_decomposed baddbmm addbmm addmv mv dot vdot matmul outer inner tensordot einsum __rmatmul__
        nn_functional_linear nn_functional_bilinear addr bmm_triton_optimized torch__scaled_mm torch__scaled_mm_v2
        """
    ),
    "convolution": names(
        """
        nn_functional_conv1d nn_functional_conv2d nn_functional_conv3d nn_functional_conv_transpose1d
        nn_functional_conv_transpose2d nn_functional_conv_transpose3d
        """
    ),
    "pooling": names(
        """
        nn_functional_max_pool1d nn_functional_max_pool2d nn_functional_max_pool3d nn_functional_avg_pool1d
        nn_functional_avg_pool2d nn_functional_avg_pool3d nn_functional_adaptive_avg_pool1d
        nn_functional_adaptive_avg_pool2d nn_functional_adaptive_avg_pool3d nn_functional_adaptive_max_pool1d
        nn_functional_adaptive_max_pool2d nn_functional_adaptive_max_pool3d max_pool2d_with_indices_backward
        """
    ),
    "norms": names(
        """
        nn_functional_batch_norm nn_functional_batch_norm_without_cudnn native_batch_norm _native_batch_norm_legit
        _batch_norm_with_update nn_functional_layer_norm native_layer_norm nn_functional_group_norm native_group_norm
        nn_functional_instance_norm nn_functional_rms_norm nn_functional_normalize
        """
    ),
    "attention": names(
        """
        nn_functional_scaled_dot_product_attention nn_functional_multi_head_attention_forward
        """
    ),
    "losses": names(
        """
        nn_functional_cross_entropy nn_functional_nll_loss nn_functional_mse_loss nn_functional_l1_loss
        nn_functional_smooth_l1_loss nn_functional_huber_loss nn_functional_binary_cross_entropy
        nn_functional_binary_cross_entropy_with_logits nn_functional_kl_div nn_functional_hinge_embedding_loss
        nn_functional_margin_ranking_loss nn_functional_soft_margin_loss nn_functional_cosine_embedding_loss
        nn_functional_cosine_similarity nn_functional_gaussian_nll_loss nn_functional_poisson_nll_loss
        """
    ),
    "indexing": names(
        """
        index_select index_add index_copy index_fill index_put __getitem__ gather scatter scatter_add scatter_reduce_sum
        scatter_reduce_prod scatter_reduce_mean scatter_reduce_amin scatter_reduce_amax take put take_along_dim
        masked_select masked_scatter nonzero argwhere nn_functional_embedding nn_functional_one_hot sort argsort msort
        topk tril triu tril_indices triu_indices diag diagonal diag_embed
        """
    ),
    "shape": names(
        """
        cat stack hstack vstack dstack column_stack chunk split split_list_args split_with_sizes unsafe_chunk
        unsafe_split hsplit vsplit dsplit tensor_split unbind narrow narrow_copy select slice squeeze squeeze_multiple
        unsqueeze expand expand_as broadcast_to broadcast_tensors repeat repeat_interleave tile reshape reshape_as view
        view_as view_copy flatten unflatten ravel permute permute_copy transpose transpose_copy t t_copy T H mT mH
        movedim flip fliplr flipud roll rot90 as_strided as_strided_copy as_strided_scatter diagonal_copy
        diagonal_scatter select_scatter slice_scatter expand_copy unsqueeze_copy squeeze_copy unfold unfold_copy
        atleast_1d atleast_2d atleast_3d meshgrid_list_of_tensors meshgrid_variadic_tensors block_diag cartesian_prod
        combinations kron trace constant_pad_nd nn_functional_pad_constant nn_functional_pad_circular
        nn_functional_pixel_shuffle nn_functional_pixel_unshuffle resize_ resize_as_ alias_copy
        """
    ),
    "factories": names(
        """
        arange linspace zeros ones full empty eye empty_like zeros_like ones_like full_like new_zeros new_ones new_full
        new_empty new_empty_strided empty_strided empty_permuted scalar_tensor rand_like randn randn_like randint
        randint_like normal normal_in_place normal_number_mean uniform bernoulli exponential multinomial
        nn_functional_dropout nn_functional_dropout2d nn_functional_dropout3d nn_functional_alpha_dropout
        native_dropout_backward item to bfloat16 bool byte char double float half int long short
        """
    ),
    "vision": names(
        """
        nn_functional_interpolate_nearest nn_functional_interpolate_nearest-exact nn_functional_interpolate_linear
        nn_functional_interpolate_bilinear nn_functional_interpolate_bicubic nn_functional_interpolate_trilinear
        nn_functional_upsample_nearest nn_functional_upsample_bilinear _upsample_bilinear2d_aa
        nn_functional_grid_sample grid_sampler_2d grid_sampler_3d nn_functional_channel_shuffle nn_functional_unfold
        nn_functional_fractional_max_pool2d nn_functional_fractional_max_pool3d
        nn_functional_max_unpool1d nn_functional_max_unpool2d nn_functional_max_unpool3d
        nn_functional_max_unpool1d_grad nn_functional_max_unpool2d_grad nn_functional_max_unpool3d_grad
        """
    ),
    "special": names(
        """
        i0 igamma igammac mvlgamma_mvlgamma_p_1 mvlgamma_mvlgamma_p_3 mvlgamma_mvlgamma_p_5 polygamma_polygamma_n_0
        polygamma_polygamma_n_1 polygamma_polygamma_n_2 polygamma_polygamma_n_3 polygamma_polygamma_n_4
        special_airy_ai special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1
        special_chebyshev_polynomial_t special_chebyshev_polynomial_u special_chebyshev_polynomial_v
        special_chebyshev_polynomial_w special_entr special_erfcx special_hermite_polynomial_h
        special_hermite_polynomial_he special_i0e special_i1 special_i1e special_laguerre_polynomial_l
        special_legendre_polynomial_p special_log_ndtr special_modified_bessel_i0 special_modified_bessel_i1
        special_modified_bessel_k0 special_modified_bessel_k1 special_ndtr special_ndtri
        special_polygamma_special_polygamma_n_0 special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1
        special_shifted_chebyshev_polynomial_t special_shifted_chebyshev_polynomial_u
        special_shifted_chebyshev_polynomial_v special_shifted_chebyshev_polynomial_w special_spherical_bessel_j0
        special_xlog1py special_zeta
        """
    ),
    "sequences_and_distances": names(
        """
        cdist nn_functional_pdist nn_functional_pairwise_distance nn_functional_ctc_loss _segment_reduce_lengths
        _segment_reduce_offsets nn_functional_rrelu histogram histogramdd histc bincount unique unique_consecutive median
        nanmedian mode kthvalue searchsorted bucketize logcumsumexp cummax cummin renorm hash_tensor
        """
    ),
    "linalg": names(
        """
        cholesky cholesky_inverse cholesky_solve cross geqrf lu_unpack lu lu_solve matrix_exp ormqr qr triangular_solve
        svd svd_lowrank pca_lowrank pinverse logdet linalg_cross linalg_det linalg_diagonal linalg_cholesky
        linalg_cholesky_ex linalg_vecdot linalg_cond linalg_eig linalg_eigvals linalg_eigh linalg_eigvalsh
        linalg_householder_product linalg_ldl_factor linalg_ldl_factor_ex linalg_ldl_solve linalg_lstsq
        linalg_lstsq_grad_oriented linalg_matrix_power linalg_multi_dot linalg_norm linalg_norm_subgradients_at_zero
        linalg_matrix_norm linalg_qr linalg_slogdet linalg_vander linalg_lu_factor linalg_lu_factor_ex linalg_lu
        linalg_lu_solve linalg_inv linalg_inv_ex linalg_solve linalg_solve_ex linalg_solve_triangular linalg_matrix_rank
        linalg_matrix_rank_hermitian linalg_pinv linalg_pinv_singular linalg_pinv_hermitian linalg_svd linalg_svdvals
        linalg_tensorinv linalg_tensorsolve corrcoef cov trapz trapezoid cumulative_trapezoid
        """
    ),
    "fft": names(
        """
        fft_fft fft_fft2 fft_fftn fft_hfft fft_hfft2 fft_hfftn fft_rfft fft_rfft2 fft_rfftn fft_ifft fft_ifft2 fft_ifftn
        fft_ihfft fft_ihfft2 fft_ihfftn fft_irfft fft_irfft2 fft_irfftn fft_fftshift fft_ifftshift stft istft
        """
    ),
    "others": names(
        """
        cauchy geometric log_normal allclose broadcast_shapes resolve_conj resolve_neg view_as_real view_as_complex
        complex diff frexp gradient nn_functional_linear_cross_entropy nn_functional_linear_cross_entropy_chunked
        nn_functional_linear_cross_entropy_chunked_none isin linspace_tensor_overload logspace logspace_tensor_overload
        quantile nanquantile as_strided_partial_views nn_functional_local_response_norm nn_functional_pad_reflect
        nn_functional_pad_replicate nn_functional_pad_replicate_negative nn_functional_interpolate_area
        nn_functional_multi_margin_loss nn_functional_multilabel_margin_loss nn_functional_multilabel_soft_margin_loss
        torch_ops_aten__safe_softmax_default torch_ops_aten__flash_attention_forward
        torch_ops_aten__efficient_attention_forward nn_functional_silu_complex nn_functional_triplet_margin_loss
        nn_functional_triplet_margin_with_distance_loss dist round_decimals_0 round_decimals_3 round_decimals_neg_3
        split_with_sizes_copy polar unravel_index index_reduce_mean index_reduce_prod index_reduce_amin
        index_reduce_amax _unsafe_masked_index _unsafe_masked_index_put_accumulate cdouble cfloat chalf _chunk_cat
        unbind_copy to_sparse nonzero_static norm_nuc nn_functional_feature_alpha_dropout_with_train
        nn_functional_feature_alpha_dropout_without_train nn_functional_embedding_bag diagflat signal_windows_hamming
        signal_windows_hann signal_windows_bartlett signal_windows_blackman signal_windows_cosine
        signal_windows_exponential signal_windows_gaussian signal_windows_kaiser signal_windows_general_cosine
        signal_windows_general_hamming signal_windows_nuttall masked_sum masked_prod masked_cumsum masked_cumprod
        masked_amax masked_amin masked_argmax masked_argmin masked_mean masked_median masked_norm masked_var masked_std
        masked_softmax masked_log_softmax masked_softmin masked_normalize masked_logaddexp masked_logsumexp
        """
    ),
}

CLAIMED: frozenset[str] = frozenset(name for family in FAMILIES.values() for name in family)

# Why the other entries of op_db are not.
UNCLAIMED: dict[str, str] = {
    **dict.fromkeys(
        names(
            """
            jiterator_unary jiterator_binary jiterator_4inputs_with_extra_args jiterator_binary_return_by_ref
            jiterator_2inputs_2outputs
            """
        ),
        "compiles CUDA source; native CPU refuses it",
    ),
    **dict.fromkeys(
        names("sparse_sampled_addmm sparse_mm_reduce"), "takes sparse tensors in CSR form, which the device has none of"
    ),
}
