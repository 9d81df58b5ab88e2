data "aws_caller_identity" "current" {}

data "aws_iam_policy_document" "as_function" {
  statement {
    actions = ["sts:AssumeRole"]
    principals {
      type        = "Service"
      identifiers = ["lambda.amazonaws.com"]
    }
  }
}

data "aws_iam_policy_document" "function" {
  statement {
    sid       = "Secrets"
    actions   = ["secretsmanager:GetSecretValue"]
    resources = [data.aws_secretsmanager_secret.client.arn]
  }
  statement {
    sid       = "Logs"
    actions   = ["logs:CreateLogStream", "logs:PutLogEvents"]
    resources = ["${aws_cloudwatch_log_group.function.arn}:*"]
  }
  statement {
    sid       = "Undelivered"
    actions   = ["sqs:SendMessage"]
    resources = [aws_sqs_queue.undelivered.arn]
  }
}

resource "aws_iam_role" "function" {
  name               = "${var.name}-function-${var.region}"
  assume_role_policy = data.aws_iam_policy_document.as_function.json
}

resource "aws_iam_role_policy" "function" {
  name   = "client"
  role   = aws_iam_role.function.id
  policy = data.aws_iam_policy_document.function.json
}

data "aws_iam_policy_document" "as_scheduler" {
  statement {
    actions = ["sts:AssumeRole"]
    principals {
      type        = "Service"
      identifiers = ["scheduler.amazonaws.com"]
    }
    # Else another account's schedule could use the role.
    condition {
      test     = "StringEquals"
      variable = "aws:SourceAccount"
      values   = [data.aws_caller_identity.current.account_id]
    }
  }
}

data "aws_iam_policy_document" "scheduler" {
  statement {
    sid       = "Invoke"
    actions   = ["lambda:InvokeFunction"]
    resources = [aws_lambda_function.client.arn]
  }
  statement {
    sid       = "Undelivered"
    actions   = ["sqs:SendMessage"]
    resources = [aws_sqs_queue.undelivered.arn]
  }
}

resource "aws_iam_role" "scheduler" {
  name               = "${var.name}-scheduler-${var.region}"
  assume_role_policy = data.aws_iam_policy_document.as_scheduler.json
}

resource "aws_iam_role_policy" "scheduler" {
  name   = "client"
  role   = aws_iam_role.scheduler.id
  policy = data.aws_iam_policy_document.scheduler.json
}
