locals {
  folder = abspath("${path.module}/../../../../cronless_dagster/client")
}

# The client's own folder, as it is: it needs nothing but Python.
data "archive_file" "code" {
  type        = "zip"
  output_path = "${path.root}/.terraform/${var.name}-${var.region}.zip"

  dynamic "source" {
    for_each = fileset(local.folder, "*.py")
    content {
      filename = "client/${source.value}"
      content  = file("${local.folder}/${source.value}")
    }
  }

  source {
    filename = "function.py"
    content  = file("${path.module}/function.py")
  }

  source {
    filename = "checks.toml"
    content  = file(var.config_file)
  }
}

# Made by hand, or by what rotates it. Only its name and ARN are read here: its value would stay in Terraform's state.
data "aws_secretsmanager_secret" "client" {
  name = var.secret_name
}

resource "aws_cloudwatch_log_group" "function" {
  name              = "/aws/lambda/${var.name}"
  retention_in_days = var.log_days
}

resource "aws_lambda_function" "client" {
  function_name = var.name
  description   = "Calls the checks of a minute."
  role          = aws_iam_role.function.arn

  runtime          = "python3.13"
  architectures    = ["arm64"]
  handler          = "function.handler"
  filename         = data.archive_file.code.output_path
  source_code_hash = data.archive_file.code.output_base64sha256
  memory_size      = 256
  timeout          = var.timeout_seconds

  environment {
    variables = merge(
      { SECRET_NAME = var.secret_name },
      var.own_target == "" ? {} : { CRONLESS_CLIENT_SELF = var.own_target },
    )
  }

  logging_config {
    log_format = "JSON"
    log_group  = aws_cloudwatch_log_group.function.name
  }

  depends_on = [aws_iam_role_policy.function]
}

# The scheduler's invocations are asynchronous. None is repeated: the client itself repeats its calls within the minute,
# and the next minute's calls do what this one's didn't.
resource "aws_lambda_function_event_invoke_config" "client" {
  function_name                = aws_lambda_function.client.function_name
  maximum_event_age_in_seconds = 60
  maximum_retry_attempts       = 0

  destination_config {
    on_failure {
      destination = aws_sqs_queue.undelivered.arn
    }
  }
}

# Events of minutes in which something failed, for whoever looks into it; nothing reads them back.
resource "aws_sqs_queue" "undelivered" {
  name                      = "${var.name}-undelivered"
  message_retention_seconds = 14 * 24 * 60 * 60
  sqs_managed_sse_enabled   = true
}
